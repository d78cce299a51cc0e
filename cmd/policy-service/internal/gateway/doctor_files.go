package gateway

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/plainfile"
	"policy-service/pdp/server/listener"
)

// mostSecret is the size of a file with a secret.
const mostSecret = 64 << 10

// files looks at every file that the configuration names, and at what must be in it.
func (x *exam) files() {
	before := len(x.findings)
	x.secret("pdp.key_file", x.told.PDP.KeyFile)
	for _, name := range x.told.Seal.KeyFiles {
		if text := x.secret("seal.key_files", name); text != nil && !isSealKey(text) {
			x.bites("files", "write 32 random bytes there, or their base64url: head -c 32 /dev/urandom", "%s is no key to seal with", name)
		}
	}
	if len(x.told.Seal.KeyFiles) == 0 {
		x.ok("files", "there is no seal.key_files: sessions, cursors and forms that wait for an answer end with the process, and there can be no second one")
	}
	for _, name := range slices.Sorted(maps.Keys(x.told.Upstreams)) {
		u := x.told.Upstreams[name]
		x.secret("header_file", u.Auth.HeaderFile)
		if t := u.Auth.TokenExchange; t != nil {
			x.secret("client_secret_file", t.ClientSecretFile)
		}
		if t := u.Auth.ClientCredentials; t != nil {
			x.secret("client_secret_file", t.ClientSecretFile)
		}
		for _, name := range u.EnvFiles {
			x.secret("env_files", name)
		}
	}
	if n := x.told.Obligations.Notification; n != nil {
		x.secret("obligations.notification.key_file", n.KeyFile)
	}
	if x.told.TLS.CertFile != "" {
		x.certificate()
	}
	if len(x.findings) == before {
		x.ok("files", "all files of the configuration can be read")
	}
}

// secret is what a file holds; nil if it is not named, or is of no use.
func (x *exam) secret(key, name string) []byte {
	if name == "" {
		return nil
	}
	text, err := plainfile.ReadPrivate(name, mostSecret)
	switch {
	case err != nil:
		x.bites("files", "correct "+key+", or the permissions of the file: it must be readable for the gateway, and not for everybody", "%s cannot be used: %v", key, err)
		return nil
	case len(text) == 0:
		x.bites("files", "write it", "%s is empty: %s", key, name)
		return nil
	}
	return text
}

// isSealKey reports whether a file has 32 bytes, as they are or in base64url.
func isSealKey(text []byte) bool {
	if len(text) == 32 {
		return true
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(string(text)), "="))
	return err == nil && len(key) == 32
}

// renewWithin is how long before its end a certificate should have been renewed.
const renewWithin = 14 * 24 * time.Hour

func (x *exam) certificate() {
	t := x.told.TLS
	leaf, err := listener.TLSFiles{CertFile: t.CertFile, KeyFile: t.KeyFile}.Leaf()
	if err != nil {
		x.wrong("files", err)
		return
	}
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	if time.Until(leaf.NotAfter) < renewWithin {
		x.bites("files", "renew it; a changed file counts without a restart", "the certificate %s ends on %s, and clients refuse it then", t.CertFile, end)
		return
	}
	x.ok("files", "the certificate %s is good until %s", t.CertFile, end)
}

// program is whether the program of an upstream is there.
func (x *exam) program(name string, u mcp.UpstreamConfig) {
	path, err := u.Program()
	if err == nil && u.Dir != "" {
		_, err = os.Stat(u.Dir)
	}
	if err != nil {
		x.bites("upstream", "install it, or write its whole path into command", "no tool of %s can be called: %v", name, err)
		return
	}
	x.ok("upstream", "the program of %s is %s", name, path)
}

// withoutURL is an error of a request without the address, in which there may be a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
