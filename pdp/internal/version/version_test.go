package version_test

import (
	"os"
	"regexp"
	"runtime/debug"
	"testing"

	"policy-service/pdp/internal/version"
)

func TestVersion(t *testing.T) {
	vcs := []debug.BuildSetting{
		{Key: "GOARCH", Value: "arm64"},
		{Key: "GOOS", Value: "darwin"},
		{Key: "vcs.revision", Value: "196a447af0c1d2e3f4a5b6c7d8e9f00112233445"},
		{Key: "vcs.time", Value: "2026-11-20T13:00:00Z"},
		{Key: "vcs.modified", Value: "false"},
	}
	changed := append(vcs[:4:4], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	const commit, changes, unknown = ", commit 196a447af0c1d2e3f4a5b6c7d8e9f00112233445", " with changes that are not in it", ", commit unknown: it was built without the repository"
	const at = ", 2026-11-20T13:00:00Z"
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", vcs, "v1.2.3" + commit + at},
		{"v1.2.3", vcs[:2], "v1.2.3" + unknown}, // go install of a tag
		{"v1.2.3+dirty", changed, "v1.2.3+dirty" + commit + changes + at},
		{"v0.0.0-20261120130000-196a447af0c1", vcs, version.Next + "-dev+196a447af0c1" + commit + at},
		{"v0.0.0-20261120130000-196a447af0c1+dirty", changed, version.Next + "-dev+196a447af0c1.dirty" + commit + changes + at},
		{"v0.0.0-20261120130000-196a447af0c1", vcs[:2], version.Next + "-dev+196a447af0c1" + unknown}, // go install of a commit
		{"(devel)", vcs, version.Next + "-dev+196a447af0c1" + commit + at},
		{"(devel)", vcs[:2], version.Next + "-dev" + unknown},
		{"", vcs[:2], version.Next + "-dev" + unknown},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got, want := version.Of(info).String(), "policy-service "+c.want+", go1.26.0 darwin/arm64"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestNext: the list of changes begins with the version in the making.
func TestNext(t *testing.T) {
	changes, err := os.ReadFile("../../../cmd/policy-service/CHANGES.md")
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile(`(?m)^## (\S+) \(unreleased\)$`).FindSubmatch(changes)
	if first == nil || "v"+string(first[1]) != version.Next {
		t.Errorf("the list of changes begins with %q, and the version in the making is %s", first, version.Next)
	}
}
