package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// configuration is the configuration itself, with the files that no other part looks at.
type configuration struct {
	*server.Config
	err  error        // why it is not whole
	said finding.List // by the configuration
	now  time.Time
}

// Findings implements [finding.Looked].
func (c configuration) Findings(context.Context) (found finding.List) {
	const check = "configuration"
	if c.err != nil {
		found.Wrong(check, c.err)
	} else if found = of(check, c.said); len(found) == 0 {
		found.OK(check, "it can be used")
	}
	if err := auth.TokenFile(c.Metrics.TokenFile).Check(); err != nil {
		found.Wrong(check, fmt.Errorf("metrics.token_file: %w", err))
	}
	return append(found, c.TLS.Findings(c.now)...)
}

// of returns those of one check.
func of(check string, all finding.List) (some finding.List) {
	for _, f := range all {
		if f.Check == check {
			some = append(some, f)
		}
	}
	return some
}

// policies are the directory of the bundle.
type policies struct {
	*server.Config
	now time.Time
}

// Findings looks whether the server would start with the policies as they are, and whether others could change them.
func (p policies) Findings(context.Context) (found finding.List) {
	const check = "bundle"
	if _, err := os.ReadDir(p.Policies); err != nil {
		found.Bites(check, "give --policies the directory that holds the .cedar files, as the user that serve runs as", "it cannot be read: %v", err)
		return found
	}
	bundle, problems := pdp.Check(pdp.Dir(p.Policies), p.now)
	warnings := 0
	for _, problem := range problems {
		if problem.Severity == pdp.SeverityWarning {
			warnings++
			continue
		}
		try := problem.Try
		problem.Try = ""
		found.Bites(check, try, "%s", problem.String())
	}
	if bundle != nil {
		found.OK(check, "%s loads with %d warnings (policy-service check lists them), %s", p.Policies, warnings, bundle.Digest())
		found.Wrong(check, p.DecisionLog.Retain.Outlasted(bundle.LongestApproval()))
	}
	if first, count := p.writable(); count > 0 {
		found.Bites(check, "chmod -R o-w "+p.Policies, "every user of this machine can change what is decided: %d of its files and directories are writable for all, the first is %s", count, first)
	}
	return found
}

// writable returns how many files every user can change, and the first: with them that user decides.
func (p policies) writable() (first string, count int) {
	if v, err := volumeOf(p.Policies); err == nil && v.readOnly {
		return "", 0 // as Kubernetes mounts a ConfigMap: mode 0777, and no user can write
	}
	_ = fs.WalkDir(os.DirFS(p.Policies), ".", func(name string, entry fs.DirEntry, err error) error {
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
	return first, count
}
