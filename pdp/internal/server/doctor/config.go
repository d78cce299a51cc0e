package doctor

import (
	"fmt"
	"io/fs"
	"os"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// configuration looks whether a server can be made of its configuration.
func (x *exam) configuration() {
	err := x.ConfigErr
	if err == nil {
		_, err = server.New(x.Config)
	}
	if err != nil {
		x.Wrong("configuration", err)
	} else {
		x.OK("configuration", "it can be used")
	}
	if err := auth.TokenFile(x.Config.Metrics.TokenFile).Check(); err != nil {
		x.Wrong("configuration", fmt.Errorf("metrics.token_file: %w", err))
	}
	x.Certificate(x.Config.TLS.TLSFiles, x.now())
}

// bundle looks whether the server would start with the policies as they are, and whether others could change them.
func (x *exam) bundle() {
	if _, err := os.ReadDir(x.Policies); err != nil {
		x.Bites("bundle", "give --policies the directory that holds the .cedar files, as the user that serve runs as", "it cannot be read: %v", err)
		return
	}
	bundle, problems := pdp.Check(pdp.Dir(x.Policies), x.now())
	warnings := 0
	for _, p := range problems {
		if p.Severity == pdp.SeverityWarning {
			warnings++
			continue
		}
		try := p.Try
		p.Try = ""
		x.Bites("bundle", try, "%s", p.String())
	}
	if bundle != nil {
		x.OK("bundle", "%s loads with %d warnings (policy-service check lists them), %s", x.Policies, warnings, bundle.Digest())
		if err := x.Config.DecisionLog.Retain.Outlasted(bundle.LongestApproval()); err != nil {
			x.Wrong("bundle", err)
		}
	}
	x.writers()
}

// writers looks for files that every user can change: with them that user decides.
func (x *exam) writers() {
	if v, err := volumeOf(x.Policies); err == nil && v.readOnly {
		return // as Kubernetes mounts a ConfigMap: mode 0777, and no user can write
	}
	first, count := "", 0
	_ = fs.WalkDir(os.DirFS(x.Policies), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // its directory is looked at
		}
		// The mode of a link says nothing.
		if info, err := entry.Info(); err == nil && info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o002 != 0 {
			if count++; count == 1 {
				first = name
			}
		}
		return nil
	})
	if count > 0 {
		x.Bites("bundle", "chmod -R o-w "+x.Policies, "every user of this machine can change what is decided: %d of its files and directories are writable for all, the first is %s", count, first)
	}
}
