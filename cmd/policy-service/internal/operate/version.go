package operate

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"policy-service/cmd/policy-service/internal/cli"
)

// Version prints which program this is.
type Version struct {
	JSON bool `name:"json" help:"Print JSON, for programs."`
}

// Run prints which program this is.
func (c Version) Run(s cli.Streams) error {
	b := thisBuild()
	if c.JSON {
		return s.PrintJSON(b)
	}
	s.Print("%s", b)
	return nil
}

// build says which program this is. It is the same for two builds of one commit on one platform: the time is that of
// the commit, not of the build.
type build struct {
	Version  string `json:"version"`           // the tag, or what go makes of a commit without one
	Commit   string `json:"commit,omitzero"`   // empty if the build did not see the repository
	Time     string `json:"time,omitzero"`     // of the commit
	Modified bool   `json:"modified,omitzero"` // with changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{
		Version:  cmp.Or(info.Main.Version, "(devel)"),
		Go:       info.GoVersion,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the line that people read, and paste into a report.
func (b build) String() string {
	parts := []string{"policy-service " + b.Version, "commit unknown: it was built without the repository"}
	if b.Commit != "" {
		parts[1] = "commit " + b.Commit
		if b.Modified {
			parts[1] += " with changes that are not in it"
		}
		parts = append(parts, b.Time)
	}
	return strings.Join(append(parts, b.Go+" "+b.Platform), ", ")
}
