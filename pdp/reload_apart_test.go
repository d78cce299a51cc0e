package pdp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
)

// asks has user::"0" in a tenant ask for what [smallest] and [numbered] permit.
func (w *tenants) asks(tenant string) (bool, error) {
	d, err := w.Evaluate(w.t.Context(), Call{Request: evaluation.Request{
		Tenant: tenant, Subject: evaluation.Entity{Type: "user", ID: "0"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "doc", ID: "d"},
	}})
	return d.Allow, err
}

// stands fails where an answer in a tenant, or the refusal, is another one.
func (w *tenants) stands(what string, allow bool, is error, refused string) {
	w.t.Helper()
	if got, err := w.asks("acme"); got != allow || !errors.Is(err, is) {
		w.t.Errorf("%s: acme has %v, %v; want %v, %v", what, got, err, allow, is)
	}
	got := ""
	if r := w.Status().Refused; r != nil {
		got = strings.Join(r.Tenants, " ") + ": " + strings.Join(codes(r.Problems), ", ")
	}
	if got != refused {
		w.t.Errorf("%s: refused is %q, want %q", what, got, refused)
	}
}

const permitAll = "@id(\"all\") permit (principal is user, action, resource);\n"

// An edit of the root comes into force whatever is wrong in a tenant's files, and what is in force of the tenant stays so.
func TestATenantsBrokenFileHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.write(tree{"tenants/acme/all.cedar": permitAll})
	must(t, w.Reload(t.Context()))
	w.stands("before", true, nil, "")

	w.write(tree{"tenants/acme/all.cedar": "permit (principal", "tenants/other/y.cedar": ofTenant("y", 1)})
	if err := w.Reload(t.Context()); !errors.As(err, new(Problems)) {
		t.Errorf("the error is %v", err)
	}
	const broken = "acme: tenants/acme/all.cedar policy_syntax"
	w.stands("a broken file", true, nil, broken)
	inForce := tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/acme/all.cedar": permitAll, "tenants/other/y.cedar": ofTenant("y", 1)}
	dir := t.TempDir()
	inForce.Write(t, dir)
	if s := w.Status(); s.Digest != digestOf(dir) || s.OnDisk != Dir(w.dir).Read().Digest() || digestOfContent(w.incoming[2].Files) != s.Digest || !slices.Equal(w.incoming[2].Later, []string{"acme"}) {
		t.Errorf("another tenant's edit: %+v, %+v", s, w.incoming[2].Later)
	}

	at := w.Status().Refused
	w.write(tree{"stop.cedar": forbidAll})
	_ = w.Reload(t.Context())
	w.stands("the root's forbid", false, nil, broken)
	if now := w.Status().Refused; now != at {
		t.Errorf("the same refusal is another: %+v", now)
	}
	w.write(tree{"bad.cedar": "forbid("})
	_ = w.Reload(t.Context())
	if s := w.Status(); len(s.Refused.Tenants) > 0 || s.Digest == s.OnDisk {
		t.Errorf("an error of the root refuses the whole bundle: %+v", s)
	}
	must(t, os.Remove(filepath.Join(w.dir, "bad.cedar")))
	must(t, os.Remove(filepath.Join(w.dir, "stop.cedar")))
	_ = w.Reload(t.Context())
	w.stands("the root mended", true, nil, broken)
	w.write(tree{"tenants/acme/all.cedar": permitAll})
	must(t, w.Reload(t.Context()))
	w.stands("taken back", true, nil, "")
}

// Where nothing that loads is left of a tenant, nothing is decided in it: its old files would lack what the root says now.
func TestATenantWhoseOldFilesDoNotLoadEitherIsUnavailable(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.write(tree{"tenants/acme/all.cedar": permitAll})
	must(t, w.Reload(t.Context()))
	w.write(tree{"tenants/acme/all.cedar": "permit (principal", "own.cedar": ofTenant("x", 0)}) // whose id acme has, too
	_ = w.Reload(t.Context())
	const broken = "acme: tenants/acme/all.cedar policy_syntax, tenants/acme/x.cedar duplicate_id"
	w.stands("neither loads", false, ErrTenantUnavailable, broken)
	if _, err := w.asks("other"); err != nil || !slices.Equal(w.Bundle().Unavailable(), []string{"acme"}) || !w.Bundle().HasTenant("acme") || slices.Contains(w.Bundle().Tenants(), "acme") {
		t.Errorf("other: %v; unavailable are %v", err, w.Bundle().Unavailable())
	}
	if _, err := w.asks("never"); !errors.Is(err, ErrUnknownTenant) {
		t.Error(err)
	}
	w.write(tree{"tenants/other/y.cedar": ofTenant("y", 1)})
	_ = w.Reload(t.Context())
	w.stands("another edits", false, ErrTenantUnavailable, broken)
	w.write(tree{"tenants/acme/all.cedar": permitAll, "tenants/acme/x.cedar": ofTenant("own", 0)})
	must(t, w.Reload(t.Context()))
	w.stands("mended", true, nil, "")

	w.write(tree{"tenants/acme/all.cedar": "permit (principal", "own.cedar": ofTenant("own", 0)})
	_ = w.Reload(t.Context())
	must(t, os.Rename(filepath.Join(w.dir, "tenants/acme"), filepath.Join(t.TempDir(), "acme")))
	must(t, w.Reload(t.Context()))
	w.stands("moved out", false, ErrUnknownTenant, "")
}

// A start has nothing from before.
func TestAStartWithoutATenantThatDoesNotLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "tenants/acme/x.cedar": "permit (", "tenants/other/y.cedar": ofTenant("y", 0)}.Write(t, dir)
	w := watch(t, dir, nil)
	if s := w.Status(); s.Refused == nil || !slices.Equal(s.Refused.Tenants, []string{"acme"}) || s.OnDisk == s.Digest {
		t.Errorf("got %+v", s)
	}
	if _, err := (&tenants{PDP: w.PDP, t: t}).asks("acme"); !errors.Is(err, ErrTenantUnavailable) {
		t.Error(err)
	}
	tree{"tenants/acme/x.cedar": permitAll}.Write(t, dir)
	w.sees("the mended file")
	(&tenants{PDP: w.PDP, t: t}).stands("mended", true, nil, "")

	// What is wrong below a tenant's entity is the tenant's, whoever defines it.
	dir = t.TempDir()
	entity := func(uid, parent string) string {
		id := func(text string) string {
			typ, id, _ := strings.Cut(text, ":")
			return `{"type":"` + typ + `","id":"` + id + `"}`
		}
		return `{"uid":` + id(uid) + `,"attrs":{},"parents":[` + id(parent) + `]}`
	}
	tree{
		"a.cedar": `@id("a") permit (principal in role::"admin", action, resource);`, "bundle.yaml": "tenants: {parents: [role]}\n",
		"entities/e.json":              "[" + entity("user:1", "user:2") + "," + entity("user:2", "team:red") + "]",
		"tenants/acme/entities/e.json": "[" + entity("team:red", "role:own") + "," + entity("role:own", "role:admin") + "]",
	}.Write(t, dir)
	p, err := New(Dir(dir), Options{Quiet: time.Millisecond})
	if err != nil || !slices.Equal(p.Bundle().Unavailable(), []string{"acme"}) {
		t.Errorf("got %v", err)
	}

	dir = t.TempDir()
	tree{"a.cedar": "permit (", "tenants/acme/x.cedar": permitAll}.Write(t, dir)
	if _, err := New(Dir(dir), Options{}); !errors.As(err, new(Problems)) {
		t.Errorf("with an error of the root: %v", err)
	}
	dir = t.TempDir()
	tree{"a.cedar": smallest, "tenants/acme/x.cedar": "permit ("}.Write(t, dir)
	must(t, Dir(dir).WriteManifest())
	if _, err := New(Dir(dir), Options{}); !errors.As(err, new(Problems)) {
		t.Errorf("with a MANIFEST: %v", err)
	}
}

// A tenant that writes without a pause holds up no start.
func TestAStartWithoutATenantThatNeverLiesStill(t *testing.T) {
	t.Parallel()
	w := &tenants{t: t, dir: t.TempDir()}
	w.write(tree{"a.cedar": permitAll, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/other/y.cedar": ofTenant("y", 0)})
	writes := true
	source := w.restless("tenants/acme/x.cedar", func() bool { return writes })
	source.Dir = w.dir
	p, err := New(source, Options{Quiet: time.Millisecond})
	must(t, err)
	w.PDP = p
	if _, err := w.asks("acme"); !errors.Is(err, ErrTenantUnavailable) || !slices.Equal(w.Later(), []string{"acme"}) {
		t.Errorf("%v, later are %v", err, w.Later())
	}
	if allow, err := w.asks("other"); err != nil || !allow {
		t.Errorf("other: %v, %v", allow, err)
	}
	writes = false
	must(t, w.reload(context.Background(), false))
	w.stands("once it lies still", true, nil, "")
}
