package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/server"
)

// renewWithin is how long before its end a certificate should have been renewed.
const renewWithin = 14 * 24 * time.Hour

// configuration is whether a server can be made of what it is told.
func (x *exam) configuration() {
	err := x.ConfigErr
	if err == nil {
		_, err = server.New(x.Config)
	}
	if err != nil {
		x.wrong("configuration", err)
	} else {
		x.ok("configuration", "it can be used")
	}
	if x.Config.TLS.CertFile != "" {
		x.certificate()
	}
	for _, issuer := range x.Config.Auth.JWT {
		if _, err := os.Stat(issuer.JWKSFile); issuer.JWKSFile != "" && err != nil {
			x.bites("configuration", fmt.Sprintf("the keys of %s cannot be read: %v", issuer.Issuer, err), "correct auth.jwt's jwks_file")
		}
	}
}

// certificate is what clients will be shown.
func (x *exam) certificate() {
	files := x.Config.TLS
	leaf, err := files.Leaf()
	if err != nil {
		x.wrong("configuration", err)
		return
	}
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch left := leaf.NotAfter.Sub(x.now()); {
	case left <= 0:
		x.bites("configuration", fmt.Sprintf("the certificate %s ended on %s, and clients refuse it", files.CertFile, end), "renew it; a changed file counts without a restart")
	case left < renewWithin:
		x.bites("configuration", fmt.Sprintf("the certificate %s ends on %s, and clients will refuse it then", files.CertFile, end), "renew it, and see why that did not happen by itself; a changed file counts without a restart")
	default:
		x.ok("configuration", fmt.Sprintf("the certificate %s is good until %s", files.CertFile, end))
	}
	if info, err := os.Stat(files.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		x.bites("configuration", fmt.Sprintf("the key %s is open to every user of this machine (mode %#o)", files.KeyFile, info.Mode().Perm()), "chmod 600 it, and get another if anybody may have read it")
	}
}

// bundle is whether the server would start with the policies as they are, and who
// could change them.
func (x *exam) bundle() {
	if _, err := os.ReadDir(x.Policies); err != nil {
		x.bites("bundle", fmt.Sprintf("it cannot be read: %v", err), "give --policies the directory that holds the .cedar files, as the user that serve runs as")
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
		x.bites("bundle", p.String(), try)
	}
	if bundle != nil {
		x.ok("bundle", fmt.Sprintf("%s loads with %d warnings (policy-service check lists them), %s", x.Policies, warnings, bundle.Digest()))
		if err := x.Config.DecisionLog.Retain.Outlasted(bundle.LongestApproval()); err != nil {
			x.wrong("bundle", err)
		}
	}
	x.writers()
}

// writers looks for files that anybody can change: who can write a policy decides.
func (x *exam) writers() {
	if v, err := volumeOf(x.Policies); err == nil && v.readOnly {
		return // as Kubernetes mounts a ConfigMap: mode 0777, and nobody can write
	}
	first, count := countFiles(x.Policies, func(info fs.FileInfo) bool {
		return info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o002 != 0 // the mode of a link says nothing
	})
	if count > 0 {
		x.bites("bundle", fmt.Sprintf("every user of this machine can change what is decided: %d of its files and directories are writable for all, the first is %s", count, first),
			"chmod -R o-w "+x.Policies)
	}
}

// countFiles counts the files and directories in a directory that are of some kind. first is the path of the first of
// them, relative to dir. A file that cannot be looked at is not counted: a server may have removed it meanwhile, or it
// is in a directory that is counted.
func countFiles(dir string, of func(fs.FileInfo) bool) (first string, count int) {
	_ = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && of(info) {
			if count++; count == 1 {
				first = name
			}
		}
		return nil
	})
	return first, count
}
