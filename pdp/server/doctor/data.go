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

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// dataDirectory is who can read and write what the service keeps.
func (x *exam) dataDirectory() {
	if x.data == "" {
		x.bites("data", "there is no data directory: decisions are not recorded, there are no API keys, and what is signed does not verify after a restart", "add --data DIR")
		return
	}
	info, err := os.Stat(x.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.toBeMade()
		return
	case err != nil:
		x.bites("data", fmt.Sprintf("it cannot be looked at: %v", err), "do this as the user that serve runs as")
		return
	case !info.IsDir():
		x.bites("data", x.data+" is no directory", "give --data one, or a name that does not exist yet")
		return
	}
	x.exists = true
	before := len(x.findings)
	x.private(x.data, info, "700")
	for _, name := range append(server.PrivateFiles(), x.journal()...) {
		path := filepath.Join(x.data, name)
		if info, err := os.Stat(path); err == nil {
			x.private(path, info, "600")
		}
	}
	x.owners(info)
	if len(x.findings) == before {
		x.ok("data", x.data+" and its keys are their owner's alone")
	}
}

// journal are the files of the log's journal, and those that were moved aside: all of them hold records.
func (x *exam) journal() (names []string) {
	entries, _ := os.ReadDir(filepath.Join(x.data, decisionlog.LogDir)) // what cannot be read, log says
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "journal.") {
			names = append(names, filepath.Join(decisionlog.LogDir, e.Name()))
		}
	}
	return names
}

// toBeMade is about a data directory that serve would make.
func (x *exam) toBeMade() {
	parent := existing(x.data)
	if err := writable(parent); err != nil {
		x.bites("data", fmt.Sprintf("%s does not exist, and cannot be made in %s: %v", x.data, parent, err), "make it, with mode 0700, for the user that serve runs as")
		return
	}
	x.ok("data", x.data+" does not exist yet; serve makes it")
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

// private is about the permissions of a file or directory that is one user's alone.
func (x *exam) private(name string, info fs.FileInfo, mode string) {
	switch open := info.Mode().Perm(); {
	case open&0o007 != 0:
		x.bites("data", fmt.Sprintf("%s is open to every user of this machine (mode %#o)", name, open), "chmod "+mode+" "+name+", and rotate the keys if anybody may have read them")
	case open&0o070 != 0:
		x.bites("data", fmt.Sprintf("%s is open to its group (mode %#o)", name, open),
			"chmod "+mode+" "+name+"; where an fsGroup of Kubernetes does this, give --data a directory below the volume, which serve makes itself")
	}
}

// owners finds what the service could not read, or not replace: most often what
// root made with a command in between.
func (x *exam) owners(dir fs.FileInfo) {
	owner, known := ownerOf(dir)
	if !known {
		return
	}
	if me := os.Geteuid(); me != 0 && me != owner {
		x.bites("data", fmt.Sprintf("%s belongs to user %d, and this is user %d", x.data, owner, me), "do this as the user that serve runs as, or chown the directory")
		return
	}
	first, count := countFiles(x.data, func(info fs.FileInfo) bool {
		other, known := ownerOf(info)
		return known && other != owner
	})
	if count > 0 {
		x.bites("data", fmt.Sprintf("user %d, who owns %s, does not own all that is in it: %d files and directories belong to others, the first is %s", owner, x.data, count, filepath.Join(x.data, first)),
			fmt.Sprintf("chown -R %d %s; run policy-service keys and log as the user that serve runs as", owner, x.data))
	}
}

// keysOnRecord is whether the log says otherwise of a key than its file.
func (x *exam) keysOnRecord() {
	keys, err := auth.OpenKeys(x.data)
	if err != nil || x.Config.Program.InProcess {
		return
	}
	known, err := server.KeysOnRecord(x.ctx, x.reader)
	if err != nil {
		x.bites("keys", fmt.Sprintf("what the decision log says of the API keys cannot be read: %v", err), "policy-service log verify "+x.data)
		return
	}
	wrong := known.Against(keys)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		x.bites("keys", fmt.Sprintf("%q is not in force, whatever its file says: %s", name, wrong[name]),
			"find out who changed "+auth.KeyFile+", and make a new key under another name if its holder needs one")
	}
}

// keys is whether the service could use its own keys, and callers theirs.
func (x *exam) keys() {
	if !x.exists {
		return
	}
	errs := server.CheckKeys(x.data)
	for _, err := range errs {
		x.wrong("keys", err)
	}
	if len(errs) == 0 {
		x.ok("keys", "the keys of the log, of masked values, of approvals and of signatures can be used, or are made at the first start")
	}
	if x.Config.Program.InProcess { // only its program asks, and without a key
		return
	}
	keys, err := auth.OpenKeys(x.data)
	if err != nil {
		x.wrong("keys", err)
		return
	}
	inForce := 0
	for _, key := range keys.List() {
		if key.Revoked.IsZero() {
			inForce++
		}
	}
	x.relayed(keys.List())
	x.unbarred(keys.List())
	switch configured := len(x.Config.Auth.JWT)+len(x.Config.Auth.MTLS) > 0; {
	case inForce == 0 && keys.Configured() && !configured:
		x.bites("keys", "every API key is revoked, and nobody can ask", "policy-service keys add --data "+x.data+" --name NAME")
	case keys.Configured() || configured:
		x.ok("keys", fmt.Sprintf("API keys in force: %d of %d", inForce, len(keys.List())))
	default:
		x.ok("keys", "there are no credentials: everybody on this machine may ask, nobody else can")
	}
}

// unbarred is whether people who approve by API keys may decide about what is asked for them by tokens.
func (x *exam) unbarred(keys []auth.KeyInfo) {
	for n, issuer := range x.Config.Auth.JWT {
		err := issuer.Unbarred()
		ofType := func(k auth.KeyInfo) bool {
			return k.Revoked.IsZero() && slices.Contains(k.Permissions, auth.Approve) && k.Principal.Type == issuer.Principal.Type
		}
		if err != nil && slices.ContainsFunc(keys, ofType) {
			x.wrong("keys", fmt.Errorf("auth.jwt[%d]: %w", n, err))
		}
	}
}

// relayed is whether there are the keys beside which alone some tokens count. A server starts without them: keys come and
// go while it runs.
func (x *exam) relayed(keys []auth.KeyInfo) {
	for n, issuer := range x.Config.Auth.JWT {
		for _, name := range issuer.RelayedBy {
			at := slices.IndexFunc(keys, func(k auth.KeyInfo) bool { return k.Name == name })
			what, try := "", "make a key of another name, and name that one"
			switch {
			case at < 0:
				what, try = "there is none of that name", fmt.Sprintf("policy-service keys add --data %s --permission relay --name %q, or correct the name", x.data, name)
			case !keys[at].Revoked.IsZero():
				what = "it is revoked"
			case !slices.Contains(keys[at].Permissions, auth.Relay):
				what = "it lacks the permission relay"
			default:
				continue
			}
			x.bites("keys", fmt.Sprintf("auth.jwt[%d].relayed_by names the API key %q, and %s: what people say there does not count", n, name, what), try)
		}
	}
}
