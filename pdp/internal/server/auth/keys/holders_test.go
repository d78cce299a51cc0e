package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/clock"
)

var mia = auth.Principal{Type: "User", ID: "mia"}

func addApprover(t testing.TB, k *Keys, name string, p auth.Principal) string {
	t.Helper()
	secret, err := k.Add(Spec{Name: name, Principal: p, Grant: auth.Grant{Permissions: []auth.Permission{auth.Approve}}})
	must(t, err)
	return secret
}

func fileOf(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, File))
	must(t, err)
	return string(content)
}

// A key names who approves, also to a process that runs, until it is revoked.
func TestKeyOfAnApprover(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	running, command := open(t, dir, c), open(t, dir, c)
	pep := add(t, command, "pep")
	secret := addApprover(t, command, "mia", mia)
	c.Advance(checkAtMost)
	if caller, found := find(running, secret); !found || caller.Principal != mia || !caller.May(auth.Approve) || caller.May(auth.Decide) {
		t.Errorf("got %v %+v, want mia who approves", found, caller)
	}
	if caller, found := find(running, pep); !found || caller.Principal != (auth.Principal{}) || caller.May(auth.Approve) {
		t.Errorf("got %v %+v, want the key of before, which is nobody's", found, caller)
	}
	if list := running.List(); list[0].Principal != (auth.Principal{}) || list[1].Principal != mia {
		t.Errorf("listed as %+v", list)
	}
	must(t, command.Revoke("mia"))
	c.Advance(checkAtMost)
	if caller, found := find(running, secret); found || caller.Principal != (auth.Principal{}) {
		t.Errorf("revoked elsewhere, and still %+v", caller)
	}
	if list := open(t, dir, c).List(); list[1].Principal != mia || list[1].Revoked.IsZero() {
		t.Errorf("after a restart listed as %+v", list)
	}
}

func TestKeysThatNobodyCouldApproveWith(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := open(t, dir, clock.New())
	approve := auth.Grant{Permissions: []auth.Permission{auth.Decide, auth.Approve}}
	for want, spec := range map[string]Spec{
		"add who the holder is to policies, such as --principal": {Name: "a", Grant: approve},
		"a principal is up to ":                                  {Name: "b", Principal: auth.Principal{Type: "Action", ID: "mia"}, Grant: approve},
		"the principal is no valid UTF":                          {Name: "c", Principal: auth.Principal{Type: "User", ID: "mia\xff"}, Grant: approve},
	} {
		if _, err := k.Add(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", spec, err, want)
		}
	}
	if k.Configured() {
		t.Error("a refused key closed the door")
	}
	if _, err := k.Add(Spec{Name: "harmless", Principal: mia}); err != nil {
		t.Errorf("a principal that approves nothing: %v", err)
	}
}

// Of what other versions and other hands write, all is read as it was meant or nothing.
func TestKeyFilesOfApprovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := open(t, dir, clock.New())
	addApprover(t, k, "approver", auth.Principal{Type: "User", ID: "zoe"})
	whole := fileOf(t, dir)
	for name, test := range map[string]struct {
		from, to string
		read     bool
	}{
		"as it was written":           {"", "", true},
		"harmless":                    {`["approve"]`, `["decide"]`, true},
		"a format to come":            {`"format":1`, `"format":2`, false},
		"no format":                   {`"format":1,`, ``, false},
		"nobody who approves":         {`"principal":"User::\"zoe\"",`, ``, false},
		"null who approves":           {`"User::\"zoe\""`, `null`, false},
		"an empty principal":          {`"User::\"zoe\""`, `""`, false},
		"an id alone":                 {`"User::\"zoe\""`, `"zoe"`, false},
		"somebody and more":           {`"User::\"zoe\""`, `"User::\"zoe\" "`, false},
		"two principals":              {`"User::\"zoe\""`, `["User::\"zoe\""]`, false},
		"a member to come":            {`"principal"`, `"principals"`, false},
		"twice":                       {`"principal"`, `"principal":"User::\"eve\"","principal"`, false},
		"a principal without its key": {`"format":1`, `"format":1,"principal":"User::\"zoe\""`, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(whole, test.from, test.to, 1)
			if test.from != "" && text == whole {
				t.Fatalf("%s is not in %s", test.from, whole)
			}
			must(t, os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600))
			if _, err := OpenAt(dir, clock.New().Now); (err == nil) != test.read || err != nil && strings.Contains(err.Error(), "zoe") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Nothing that would let a key say more than it should is a key.
func TestKeysThatSayTooMuch(t *testing.T) {
	t.Parallel()
	k := open(t, t.TempDir(), clock.New())
	for want, spec := range map[string]Spec{
		"a key that relays what people say says nothing itself": {Name: "a", Principal: mia, Grant: auth.Grant{Permissions: []auth.Permission{auth.Relay, auth.Approve}}},
		"which enforces the answers itself":                     {Name: "a", Grant: auth.Grant{Permissions: []auth.Permission{auth.Relay}, Forwards: true}},
		"there is no such way":                                  {Name: "b", Via: evaluation.ViaForm, Grant: auth.Grant{Permissions: []auth.Permission{auth.Relay}}},
		"via says by which way":                                 {Name: "c", Via: evaluation.ViaConsole},
		"there is no permission \"re\"":                         {Name: "d", Grant: auth.Grant{Permissions: []auth.Permission{"re"}}},
	} {
		if _, err := k.Add(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", spec, err, want)
		}
	}
	if k.Configured() {
		t.Error("a refused key closed the door")
	}
}

// The file of keys says by which way votes come.
func TestKeyFilesOfRelays(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	k := open(t, dir, c)
	secret := map[string]string{}
	for name, via := range map[string]evaluation.Via{"gateway": "", "console": evaluation.ViaConsole} {
		key, err := k.Add(Spec{Name: name, Via: via, Grant: auth.Grant{Permissions: []auth.Permission{auth.Relay}}})
		must(t, err)
		secret[name] = key
	}
	again := open(t, dir, c)
	for name, want := range map[string]evaluation.Via{"gateway": evaluation.ViaForm, "console": evaluation.ViaConsole} {
		if caller, found := find(again, secret[name]); !found || caller.Relays != want {
			t.Errorf("%s: got %t %+v", name, found, caller)
		}
	}
	whole := fileOf(t, dir)
	for name, change := range map[string][2]string{
		"another way":        {`"via":"console"`, `"via":"api"`},
		"a way of no relay":  {`["relay"]`, `["decide"]`},
		"relays and decides": {`["relay"]`, `["relay","approve"]`},
	} {
		if _, err := parseFile([]byte(strings.ReplaceAll(whole, change[0], change[1]))); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}
