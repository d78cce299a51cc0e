package console_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/approval"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/server/auth"
)

// openManyRights is a server where many approval requests wait, of which one in mine is for the approver.
func openManyRights(t testing.TB, many, mine int) *rightsWorld {
	t.Helper()
	w := newRightsWorld(t)
	w.grants(rightsPerson{name: "approver", principal: "mia", tenants: []string{"*"}, permissions: []auth.Permission{auth.Approve}})
	key := bytes.Repeat([]byte("k"), 32)
	rightsMust(t, os.WriteFile(filepath.Join(w.data, "approvals.key"), key, 0o600))
	s, err := approval.Open(w.data, approval.Options{
		Key: key, Size: func() uint64 { return 0 }, Now: w.Now,
		Attest:   func(context.Context, string) (approval.Step, bool, error) { return approval.Step{}, false, nil },
		Steps:    func(context.Context, uint64, map[string]bool) (map[string][]approval.Step, error) { return nil, nil },
		Record:   func(context.Context, approval.Step) error { return nil },
		Recorded: func(string) (bool, error) { return true, nil }, Silent: true,
		Limits: approval.Limits{MaxPendingPerSubject: 1 << 30, MaxPendingPerTenant: 1 << 30, NewPerMinutePerSubject: 1 << 30},
	})
	rightsMust(t, err)
	var all sync.WaitGroup
	for begin := range 64 { // what is filed at once is written at once
		all.Go(func() {
			for n := begin; n < many; n += 64 {
				if _, err := s.File(t.Context(), rightsOneOfMany(n, mine)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	rightsMust(t, s.Close())
	w.open(pdptest.Bundle(map[string]string{
		"a.cedar": rightsPolicies, "obligations.yaml": rightsObligations,
		"entities/e.json": `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},{"uid":{"type":"team","id":"leads"},"attrs":{},"parents":[]}]`,
	}))
	return w
}

// rightsOneOfMany is the approval request of a number.
func rightsOneOfMany(n, mine int) approval.ApprovalRequest {
	template := "owner"
	if (n+1)%mine != 0 {
		template = "nobody"
	}
	return approval.ApprovalRequest{
		Digest: sha256.Sum256([]byte(strconv.Itoa(n))), Tenant: "default", Caller: "key:pep", Decision: strconv.Itoa(n), Obligation: "one",
		Terms:   obligations.Terms{Template: template, Quorum: 1, Uses: 1, Timeout: 300 * time.Hour, ValidFor: time.Hour, Message: "bot wants to push to main"},
		Subject: evaluation.Ref{Type: "agent", ID: fmt.Sprint("bot", n%100)}, Resource: evaluation.Ref{Type: "tool", ID: "one"}, Action: "ask",
		Shown: fmt.Appendf(nil, `{"subject":{"type":"agent","id":"bot%d"},"action":{"name":"ask"},"resource":{"type":"tool","id":"one"},"context":{"arguments":{"branch":"main","n":%d}}}`, n%100, n),
	}
}

// However many wait, a page of the inbox is of a size that does not depend on it.
func TestInboxOfMany(t *testing.T) {
	t.Parallel()
	w := openManyRights(t, night.Cases(10_000), 1)
	web := w.web(nil)
	web.logIn(w.secret["approver"])
	first := web.get("/approvals")
	if rows := first.rows(); first.status != http.StatusOK || len(rows) != 50 || len(first.text) > 200_000 {
		t.Errorf("got %d, %d rows, %d bytes", first.status, len(rows), len(first.text))
	}
	one := web.get("/approvals/" + first.rows()[0])
	if _, _, there := one.button("Approve"); !there || len(one.text) > 200_000 {
		t.Errorf("got %d, %d bytes", one.status, len(one.text))
	}
}

// How long does the server take for a page, if 10,000 approval requests wait: for somebody who decides about all of them,
// and for somebody who decides about one in a hundred.
func BenchmarkInbox10000(b *testing.B) {
	for _, mine := range []int{1, 100} {
		b.Run(fmt.Sprintf("one in %d is mine", mine), func(b *testing.B) {
			w := openManyRights(b, 10_000, mine)
			web := w.web(nil)
			web.logIn(w.secret["approver"])
			for name, path := range map[string]string{"inbox": "/approvals", "request": "/approvals/" + web.get("/approvals").rows()[0]} {
				b.Run(name, func(b *testing.B) {
					size := 0
					for b.Loop() {
						got := web.get(path)
						if size = len(got.text); got.status != http.StatusOK {
							b.Fatal(got.status)
						}
					}
					b.ReportMetric(float64(size)/1000, "kB/page")
				})
			}
		})
	}
}
