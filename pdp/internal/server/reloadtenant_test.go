package server_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// restless is a directory in which the file of a tenant is another at each reading while the tenant writes, however long it
// gets no turn to.
type restless struct {
	fs.FS
	writes  *atomic.Bool
	policy  func(n int) string
	reading *atomic.Int64
}

func (r restless) Open(name string) (fs.File, error) {
	if name != "tenants/acme/x.cedar" || !r.writes.Load() {
		return r.FS.Open(name)
	}
	return fstest.MapFS{name: {Data: []byte(r.policy(int(r.reading.Add(1)))), Mode: 0o644}}.Open(name)
}

// A tenant that writes its files without a pause is neither a reason for an emergency forbid
// of the root to wait, nor for anybody's question, nor does it fill the log with its loads.
func TestATenantThatWritesWithoutAPauseHoldsUpNoForbid(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	policy := func(n int) string {
		return fmt.Sprintf("@id(\"own\") permit(principal is user, action == Action::\"own\", resource); // %09d\n", n)
	}
	writeAll(t, dir, map[string]string{"a.cedar": "@id(\"a\") permit(principal is user, action, resource);\n", "tenants/acme/x.cedar": policy(0)})
	loads := make(chan pdp.Status, 10_000)
	ctx, cancel := context.WithCancel(t.Context())
	source := pdp.Dir(dir)
	var writes atomic.Bool
	source.Fsys = restless{os.DirFS(dir), &writes, policy, new(atomic.Int64)}
	s := pdptest.Start(t, source, withData(data), func(c *server.Config) {
		c.Program.PDP.Quiet = 100 * time.Millisecond
		c.Program.PDP.OnLoad = func(status pdp.Status) { loads <- status }
	})
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	wrote := make(chan struct{}, 10_000)
	writes.Store(true)
	others.Go(func() {
		at := filepath.Join(dir, "tenants/acme")
		for n := 1; ctx.Err() == nil; n++ {
			if os.WriteFile(at+"/.next", []byte(policy(n)), 0o644) != nil || os.Rename(at+"/.next", at+"/x.cedar") != nil {
				t.Error("the tenant cannot write")
				return
			}
			select {
			case wrote <- struct{}{}:
			default:
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	})
	for range 50 {
		<-wrote
	}
	allowed := func() bool {
		answer := s.Post(evaluationPath, reloadQuestion)
		if answer.Status != 200 {
			t.Errorf("status %d", answer.Status)
		}
		return strings.Contains(answer.Body, `"decision":true`)
	}
	if !allowed() {
		t.Fatal("nothing is allowed before the forbid")
	}
	for len(loads) > 0 {
		<-loads
	}
	writeAll(t, dir, map[string]string{"stop.cedar": "@id(\"stop\") forbid(principal, action, resource);\n"})
	last := ""
	for n := 1; allowed(); {
		select {
		case status := <-loads:
			last = status.Digest
			if status.Refused != nil {
				t.Errorf("refused: %v", status.Refused.Problems)
			}
			if n++; n > 4 {
				t.Fatalf("allowed after %d loads", n)
			}
		case <-time.After(patience):
			t.Fatal("the forbid is not in force")
		}
	}
	cancel()
	others.Wait()
	writes.Store(false)
	for last != pdp.Dir(dir).Read().Digest() {
		select {
		case status := <-loads:
			last = status.Digest
		case <-time.After(patience):
			t.Fatal("the tenant's last edit is not in force")
		}
	}
	stopAndWait(t, s)
	all := lines(t, data)
	if got := events(all, "bundle_refused"); len(got) > 0 {
		t.Errorf("on record as refused: %+v", got)
	}
	// What is in force without an edit that is on disk says so.
	later := 0
	for _, loaded := range events(all, "bundle_loaded") {
		if names, ok := loaded.Details["later"].([]any); ok && len(names) == 1 && names[0] == "acme" {
			later++
		}
	}
	if later == 0 {
		t.Error("no record says that the tenant's edit comes later")
	}
}
