package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
)

// dataDirectory looks at the permissions of the data directory.
func (x *exam) dataDirectory() {
	if x.data == "" {
		x.Bites("data", "add --data DIR", "there is no data directory: decisions are not recorded, there are no API keys, and what is signed does not verify after a restart")
		return
	}
	info, err := os.Stat(x.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.toBeMade()
		return
	case err != nil:
		x.Bites("data", "do this as the user that serve runs as", "it cannot be looked at: %v", err)
		return
	case !info.IsDir():
		x.Bites("data", "give --data one, or a name that does not exist yet", "%s is no directory", x.data)
		return
	}
	x.exists = true
	switch open := info.Mode().Perm(); { // no other user reaches the files in a directory that is closed
	case open&0o007 != 0:
		x.Bites("data", "chmod 700 "+x.data+", and rotate the keys if anybody may have read them", "%s is open to every user of this machine (mode %#o)", x.data, open)
	case open&0o070 != 0:
		x.Bites("data", "chmod 700 "+x.data+"; where an fsGroup of Kubernetes does this, give --data a directory below the volume, which serve makes itself",
			"%s is open to its group (mode %#o)", x.data, open)
	default:
		x.OK("data", "%s is its owner's alone", x.data)
	}
	if _, err := os.Lstat(filepath.Join(x.data, "log.key")); err == nil {
		x.OK("data", "nothing tells a copy of it from it: begin no second server with its log/, log.key, log.pub, approvals.db, capabilities.db or cluster.json")
	}
}

// toBeMade looks whether serve can make the data directory.
func (x *exam) toBeMade() {
	parent := existing(x.data)
	if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
		x.Bites("data", "make it, with mode 0700, for the user that serve runs as", "%s does not exist, and cannot be made in %s: %v", x.data, parent, err)
		return
	}
	x.OK("data", "%s does not exist yet; serve makes it", x.data)
	x.relayed(nil)
}

// existing is the nearest directory upwards that there is.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// keysOnRecord compares the API keys with the log.
func (x *exam) keysOnRecord() {
	apiKeys, err := keys.Open(x.data)
	if err != nil || x.Config.Program.InProcess {
		return
	}
	known, damage, err := keys.ReadLog(x.ctx, x.reader, apiKeys)
	if err = errors.Join(err, apiKeys.Damage(), damage); err != nil {
		x.Bites("keys", "find out who changed the directory, and see policy-service log verify "+x.data, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	wrong := known.Against(apiKeys)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		x.Bites("keys", "find out who changed "+keys.File+", and make a new key under another name if its holder needs one",
			"%q is not in force, whatever its file says: %s", name, wrong[name])
	}
}

// apiKeys are those of the data directory, or those of the cluster if the replica has the keys that open them.
func (x *exam) apiKeys() ([]keys.Info, error) {
	if x.Config.Cluster == nil {
		if x.data == "" {
			return nil, nil
		}
		apiKeys, err := keys.Open(x.data)
		if err != nil {
			return nil, err
		}
		return apiKeys.List(), nil
	}
	if !x.joined || len(server.MissingShared(x.data, &cluster.Config{})) > 0 { // to open them would make the missing keys
		return nil, nil
	}
	keys, done, err := server.OpenSharedKeys(x.ctx, x.Config)
	if err != nil {
		return nil, err
	}
	defer done()
	return keys.List(), nil
}

// keys looks whether the service could use its own keys, and callers theirs.
func (x *exam) keys() {
	if !x.exists {
		return
	}
	errs := server.CheckKeys(x.data)
	for _, err := range errs {
		x.Wrong("keys", err)
	}
	if len(errs) == 0 {
		x.OK("keys", "the keys of the log, of masked values, of approvals and of signatures can be used, or are made at the first start")
	}
	if x.Config.Program.InProcess { // only its program asks, and without a key
		return
	}
	keys, err := x.apiKeys()
	if err != nil {
		x.Wrong("keys", err)
		return
	}
	x.relayed(keys)
	x.unbarred(keys)
	x.expiring(keys)
	some := slices.ContainsFunc(keys, inForce)
	switch configured := len(x.Config.Auth.JWT)+len(x.Config.Auth.MTLS) > 0; {
	case configured:
	case !some && len(keys) > 0:
		x.Bites("keys", "policy-service keys add --data "+x.data+" --name NAME", "every API key is revoked or has expired, and nobody can ask")
	case x.Config.Cluster != nil && len(keys) == 0 && x.joined:
		x.Bites("keys", "policy-service keys add --config FILE --name NAME", "the cluster has no API key, and nobody can ask")
	case len(keys) == 0 && x.Config.Cluster == nil:
		x.OK("keys", "there are no credentials: everybody on this machine may ask, nobody else can")
	}
}

// inForce goes by the clock of the machine, as the server does for its keys.
func inForce(k keys.Info) bool { return !k.Ended(time.Now()) }

// renewWithin is how long before its end a key is named.
const renewWithin = 14 * 24 * time.Hour

// expiring looks for keys that expire soon, or have expired, and were neither revoked nor renewed.
func (x *exam) expiring(apiKeys []keys.Info) {
	for n, k := range apiKeys {
		renewed := slices.ContainsFunc(apiKeys[n+1:], func(later keys.Info) bool { return later.Name == k.Name })
		if renewed || k.Expires.IsZero() || !k.Revoked.IsZero() || time.Until(k.Expires) >= renewWithin {
			continue
		}
		ends := "expires at %s, and its holder is refused then"
		if !inForce(k) {
			ends = "expired at %s, and its holder is refused"
		}
		x.Bites("keys", fmt.Sprintf("policy-service keys renew --data %s %q makes a new secret, or keys revoke if nobody needs it", x.data, k.Name),
			"the API key %q "+ends, k.Name, k.Expires.Format(time.RFC3339))
	}
}

// unbarred looks for people who approve by an API key and could decide about their own questions, which a gateway asks
// by a token that names them in another way: see [auth.JWTIssuer.Unbarred].
func (x *exam) unbarred(apiKeys []keys.Info) {
	for n, issuer := range x.Config.Auth.JWT {
		err := issuer.Unbarred()
		ofType := func(k keys.Info) bool {
			return inForce(k) && slices.Contains(k.Permissions, auth.Approve) && k.Principal.Type == issuer.Principal.Type
		}
		if err != nil && slices.ContainsFunc(apiKeys, ofType) {
			x.Wrong("keys", fmt.Errorf("auth.jwt[%d]: %w", n, err))
		}
	}
}

// relayed looks for the keys beside which alone some tokens count. A server starts without them: keys come and go while it
// runs.
func (x *exam) relayed(apiKeys []keys.Info) {
	for n, issuer := range x.Config.Auth.JWT {
		for _, name := range issuer.RelayedBy {
			at := -1 // the newest of that name
			for n, k := range apiKeys {
				if k.Name == name {
					at = n
				}
			}
			what, try := "", "make a key of another name, and name that one"
			switch {
			case at < 0:
				what, try = "there is none of that name", fmt.Sprintf("policy-service keys add --data %s --permission relay --name %q, or correct the name", x.data, name)
			case !inForce(apiKeys[at]):
				what = "it is revoked, or has expired"
			case !slices.Contains(apiKeys[at].Permissions, auth.Relay):
				what = "it lacks the permission relay"
			default:
				continue
			}
			x.Bites("keys", try, "auth.jwt[%d].relayed_by names the API key %q, and %s: what people say there does not count", n, name, what)
		}
	}
}
