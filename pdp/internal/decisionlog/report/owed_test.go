package report

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// owing is a decision that obliges to what is named, each of the type before the
// hyphen.
func owing(id, tenant string, obligations ...string) record.Entry {
	e := entryOf(id, true)
	e.Tenant = tenant
	for _, name := range obligations {
		kind, _, _ := strings.Cut(name, "-")
		e.Decision.Obligations = append(e.Decision.Obligations, evaluation.Obligation{ID: name, Type: kind, Properties: object(map[string]any{"text": "for " + tenant})})
	}
	return e
}

func receiptFor(decision, tenant string, status evaluation.ReceiptStatus, obligations ...string) record.Entry {
	r := record.Receipt{Decision: decision}
	for _, id := range obligations {
		r.Obligations = append(r.Obligations, evaluation.Receipt{ID: id, Status: status, Detail: "of " + tenant})
	}
	return r.Entry(tenant, "key:pep")
}

func TestReportCountsWhatIsOwed(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	mustAppend(t, l,
		owing("a", "acme", "notification-1", "notification-2", "log-1"),
		owing("b", "default", "redact-1"),
		owing("c", "acme", "log-1"))
	mustAppend(t, l,
		receiptFor("a", "acme", evaluation.Discharged, "notification-1", "log-1"),
		receiptFor("a", "acme", evaluation.NotDischarged, "notification-2"),
		receiptFor("a", "acme", evaluation.NotDischarged, "log-1"),                 // said before
		receiptFor("b", "default", evaluation.Discharged, "redact-1", "redact-99"), // one that it did not oblige to
		receiptFor("nobody", "default", evaluation.Discharged, "redact-1"))
	notification, log, redact := Obligations{Owed: 2, Discharged: 1, Failed: 1}, Obligations{Owed: 2, Discharged: 1, Unreported: 1}, Obligations{Owed: 1, Discharged: 1}
	for name, c := range map[string]struct {
		tenants []string
		want    map[string]Obligations
	}{
		"all":     {nil, map[string]Obligations{"notification": notification, "log": log, "redact": redact}},
		"acme":    {[]string{"acme"}, map[string]Obligations{"notification": notification, "log": log}},
		"default": {[]string{"default"}, map[string]Obligations{"redact": redact}},
		"nobody":  {[]string{}, map[string]Obligations{}},
	} {
		r, err := Make(t.Context(), snapshotNow(t, l).For(c.tenants), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, r.Obligations); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Who may see some tenants learns the size of the whole log, and nothing else of it.
func TestStatsOfSomeTenants(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	mustAppend(t, l, entryOf("r-7", true), entryOf("r-8", true)) // the first is of acme, the other of default
	if err := l.Redact(t.Context(), "", "r-8", "on request"); err != nil {
		t.Fatal(err)
	}
	st, err := Count(t.Context(), snapshotNow(t, l).For([]string{"acme"}))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{"segments", "disk", "gaps", "redacted", "retired", "dropped", "refused", "uncovered", "admin", ".db"} {
		if strings.Contains(string(text), member) {
			t.Errorf("it says %s: %s", member, text)
		}
	}
	if st.Kinds[format.KindDecision] != 1 || len(st.Kinds) != 1 || st.Size < 5 || cmp.Diff(st.Tenants, []string{"acme"}) != "" {
		t.Errorf("%s", text)
	}
}

// What a ledger counts is what counting by hand does, in any order of receipts.
func TestLedgerProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(6, 3))
	for range 50 {
		l, want := newLedger(owedMost), map[string]Obligations{}
		open := map[string]string{} // obligation → type
		for n := range 200 {
			kind := []string{"log", "redact"}[random.IntN(2)]
			s := &record.Recorded{ID: fmt.Sprint(n), Obligations: []record.RecordedObligation{{ID: "o", Type: kind}}}
			l.decided(s)
			count := want[kind]
			count.Owed++
			open[s.ID] = kind
			of, status := fmt.Sprint(random.IntN(n+1)), []evaluation.ReceiptStatus{evaluation.Discharged, evaluation.NotDischarged}[random.IntN(2)]
			l.received(record.Receipt{Decision: of, Obligations: []evaluation.Receipt{{ID: "o", Status: status}}})
			want[kind] = count
			if kind, still := open[of]; still {
				count := want[kind]
				if status == evaluation.NotDischarged {
					count.Failed++
				} else {
					count.Discharged++
				}
				want[kind] = count
				delete(open, of)
			}
		}
		for kind, count := range want {
			count.Unreported = count.Owed - count.Discharged - count.Failed
			want[kind] = count
		}
		if diff := cmp.Diff(want, l.byType()); diff != "" {
			t.Fatal(diff)
		}
	}
}

// A PEP that never reports takes no unbounded memory, and hides nothing of one that does.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	l := newLedger(100)
	owe := func(decision, kind string) {
		l.decided(&record.Recorded{ID: decision, Obligations: []record.RecordedObligation{{ID: "o", Type: kind}}})
		if held := len(l.young) + len(l.older); held > 100 {
			t.Fatalf("%d are held", held)
		}
	}
	for n := range 1000 {
		owe(fmt.Sprint("silent", n), "log")
		owe(fmt.Sprint("honest", n), "redact")
		l.received(record.Receipt{Decision: fmt.Sprint("honest", n), Obligations: []evaluation.Receipt{{ID: "o", Status: evaluation.Discharged}}})
	}
	got := l.byType()
	if got["redact"] != (Obligations{Owed: 1000, Discharged: 1000}) {
		t.Errorf("%+v", got["redact"])
	}
	if log := got["log"]; log.Unreported != 1000 || log.GivenUp < 900 || log.GivenUp > 1000 {
		t.Errorf("%+v", log)
	}
}

// snapshotNow is the whole log, signed for now.
func snapshotNow(tb testing.TB, l *decisionlog.Log) *segment.Snapshot {
	tb.Helper()
	if _, err := l.Checkpoint(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	s, err := l.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
