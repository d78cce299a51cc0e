package operate

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	vcs := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "196a447af0"},
		{Key: "vcs.time", Value: "2026-11-20T13:00:00Z"},
		{Key: "vcs.modified", Value: "false"},
	}
	changed := append(vcs[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	end := ", go1.26.0 " + runtime.GOOS + "/" + runtime.GOARCH
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", vcs, "policy-service v1.2.3, commit 196a447af0, 2026-11-20T13:00:00Z"},
		{"v1.2.3+dirty", changed, "policy-service v1.2.3+dirty, commit 196a447af0 with changes that are not in it, 2026-11-20T13:00:00Z"},
		{"(devel)", nil, "policy-service (devel), commit unknown: it was built without the repository"},
		{"", nil, "policy-service (devel), commit unknown: it was built without the repository"},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got := buildOf(info).String(); got != c.want+end {
			t.Errorf("got  %s\nwant %s", got, c.want+end)
		}
	}
}
