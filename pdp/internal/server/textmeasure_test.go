package server_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	logexport "policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// A text that stands in 4 of a million records is found in 20 s, in a directory and over HTTP, by who sees all tenants and by who sees
// one.
func TestTextInAMillion(t *testing.T) {
	night.Measures(t)
	data, million := t.TempDir(), 1_000_000
	if n, err := strconv.Atoi(os.Getenv("RECORDS")); err == nil {
		million = n
	}
	l, err := decisionlog.Open(data, decisionlog.Options{Index: true})
	must(t, err)
	for n := 0; n < million; n += 1000 {
		entries := make([]record.Entry, 1000)
		for i := range entries {
			entries[i] = asked(t, n+i)
		}
		must(t, l.Append(t.Context(), entries))
	}
	must(t, l.Close())
	took := func(what string, least int, find func(yield func(int64, []byte) error) error) {
		begun, used, found := time.Now(), cpuTime(t), 0
		must(t, find(func(int64, []byte) error { found++; return nil }))
		t.Logf("%s: %d found in %s, %s of processors", what, found, time.Since(begun).Round(time.Millisecond), cpuTime(t)-used)
		if million == 1_000_000 && found != least || cpuTime(t)-used > 20*time.Second {
			t.Errorf("%s: %d found in %s", what, found, time.Since(begun))
		}
	}
	o := logexport.TailOptions{After: -1, Last: 10, Filter: record.Filter{Text: "Q3 launch", From: time.Now().Add(-time.Hour)}}
	took("directory, the last", 4, func(yield func(int64, []byte) error) error {
		_, err := logexport.Last(t.Context(), data, o, yield)
		return err
	})
	grants := map[string]int{"*": 4, "initech": 1}
	keys := map[string]string{}
	for tenant := range grants {
		keys[tenant] = addKey(t, data, "auditor-"+fmt.Sprint(len(tenant)), auth.Grant{Tenants: []string{tenant}, Permissions: []auth.Permission{auth.LogRead}})
	}
	s := pdptest.Start(t, telling(), withData(data), func(c *server.Config) { c.Program.PDP.Now = nil })
	for tenant, want := range grants {
		log, err := remote.New(s.URL, httpclient.Options{Credential: strings.TrimPrefix(keys[tenant], "Bearer ")})
		must(t, err)
		for range 2 { // before the index is made of all, and after
			took("server, the last, tenant "+tenant, want, func(yield func(int64, []byte) error) error {
				_, err := log.Last(t.Context(), o, yield)
				return err
			})
		}
		took("server, all from the oldest on, tenant "+tenant, want, func(yield func(int64, []byte) error) error {
			_, err := log.Tail(t.Context(), o, yield)
			return err
		})
		log.Close()
	}
}

func cpuTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Round(time.Millisecond)
}

// asked is a decision as a gateway's, in one of ten tenants.
func asked(t *testing.T, n int) record.Entry {
	purpose := "two\nlines"
	if n%400_000 == 170_007 || n == 500_000 {
		purpose = "the Q3 \u004caunch"
	}
	properties, err := evaluation.NewObject(map[string]any{"department": "sales", "purpose": purpose, "arguments": map[string]any{"branch": "main", "repository": "shop"}})
	must(t, err)
	tenant := fmt.Sprint("tenant-", n%10)
	if n%10 == 0 {
		tenant = "initech"
	}
	return record.Entry{ID: fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n), Kind: format.KindDecision, Tenant: tenant, Caller: "key:pep",
		Request: &record.Request{Asked: &evaluation.Request{
			Subject: evaluation.Entity{Type: "user", ID: fmt.Sprint("user-", n%10_000), Properties: properties}, Action: evaluation.Action{Name: "tool.invoke"},
			Resource: evaluation.Entity{Type: "tool", ID: fmt.Sprint("tool-", n%1000)}, Context: properties}},
		Decision: &record.Decision{Allow: n%7 != 0, Determining: []string{"p1"}}}
}
