package obligations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
)

var errBroken = errors.New("broken")

// handlers do an obligation of each kind; their acts are in *log.
func handlers(log *[]string) obligations.Handlers {
	does := func(end func(context.Context) error) obligations.Handler {
		return func(ctx context.Context, o evaluation.Obligation) error {
			*log = append(*log, o.ID)
			return end(ctx)
		}
	}
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	return obligations.Handlers{
		"ok":        does(func(context.Context) error { return nil }),
		"fails":     does(func(context.Context) error { return errBroken }),
		"panics":    does(func(context.Context) error { panic("a") }),
		"panics2":   does(func(context.Context) error { panic(errBroken) }),
		"by itself": does(func(ctx context.Context) error { return ctx.Value("none").(error) }),
		"waits":     does(waits),
		"slow":      obligations.Within(time.Second, does(waits)),
		"late":      obligations.Within(time.Second, does(func(ctx context.Context) error { <-ctx.Done(); return nil })),
		"broken":    obligations.Within(time.Second, does(func(context.Context) error { panic(nil) })),
		"nil":       nil,
		"within":    obligations.Within(time.Second, nil),
		"":          does(func(context.Context) error { return nil }),
	}
}

// owe writes obligations as "id:type id:type".
func owe(s string) (owed []evaluation.Obligation) {
	for word := range strings.SplitSeq(s, " ") {
		if id, typ, ok := strings.Cut(word, ":"); ok {
			owed = append(owed, evaluation.Obligation{ID: id, Type: strings.ReplaceAll(typ, "_", " ")})
		}
	}
	return owed
}

func statuses(r obligations.Report) string {
	var b strings.Builder
	for _, o := range r.Outcomes() {
		b.WriteString(string(o.Status[:1]))
	}
	return b.String()
}

func TestDischarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owed     string
		permit   bool
		statuses string // discharged, failed, unknown
		done     string
	}{
		"nothing":               {"", true, "", ""},
		"one":                   {"a:ok", true, "d", "a"},
		"three":                 {"c:ok a:ok b:ok", true, "ddd", "c a b"},
		"unknown":               {"a:other", false, "u", ""},
		"unknown case":          {"a:OK", false, "u", ""},
		"unknown before others": {"a:other b:ok", false, "ud", "b"},
		"unknown after others":  {"a:ok b:other", false, "du", "a"},
		"nil handler":           {"a:nil b:within", false, "uu", ""},
		"fails":                 {"a:fails", false, "f", "a"},
		"fails, others run":     {"a:fails b:ok c:fails d:ok", false, "fdfd", "a b c d"},
		"panics":                {"a:panics b:ok", false, "fd", "a b"},
		"panics with an error":  {"a:panics2 b:ok", false, "fd", "a b"},
		"panics by itself":      {"a:by_itself b:ok", false, "fd", "a b"},
		"panics with nil":       {"a:broken b:ok", false, "fd", "a b"},
		"slow":                  {"a:slow b:ok", false, "fd", "a b"},
		"nil, but late":         {"a:late b:ok", false, "fd", "a b"},
		"waits for the caller":  {"a:waits b:ok c:slow", false, "fdf", "a b c"},
		"no type":               {"a: b:ok", false, "ud", "b"},
		"no id":                 {":ok b:ok", false, "fd", " b"},
		"no id, no type":        {": b:ok", false, "ud", "b"},
		"same id":               {"a:ok b:ok a:ok", false, "fdf", "a b a"},
		"same id, other type":   {"a:ok a:other", false, "fu", "a"},
		"same id, one fails":    {"a:ok a:fails", false, "ff", "a a"},
		"all of it":             {"a:ok b:other c:fails d:panics e:slow f:ok", false, "dufffd", "a c d e f"},
	} {
		for _, allow := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, %v", name, allow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var done []string
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					r := obligations.Discharge(ctx, allow, owe(test.owed), handlers(&done))
					if r.Permitted() != (allow && test.permit) {
						t.Errorf("permitted: %v", r.Permitted())
					}
					if got := statuses(r); got != test.statuses || strings.Join(done, " ") != test.done {
						t.Errorf("got %s, done %v", got, done)
					}
					checkReport(t, r, owe(test.owed))
				})
			})
		}
	}
}

// checkReport holds the summary of a report to its outcomes.
func checkReport(t *testing.T, r obligations.Report, owed []evaluation.Obligation) {
	t.Helper()
	all := len(r.Outcomes()) == len(owed)
	receipts := map[string]evaluation.Receipt{}
	for _, receipt := range r.Receipts() {
		if _, twice := receipts[receipt.ID]; twice || receipt.ID == "" {
			t.Errorf("nobody can tell what this receipt is for: %v", receipt)
		}
		receipts[receipt.ID] = receipt
	}
	for n, o := range r.Outcomes() {
		receipt, told := receipts[o.ID]
		if o.ID != owed[n].ID || o.Type != owed[n].Type || told != (o.ID != "") {
			t.Errorf("outcome %v, receipt %v of %v", o, receipt, owed[n])
		}
		done := o.Status == obligations.Discharged
		if told && (done != (receipt.Status == evaluation.Discharged) || !done && receipt.Status != evaluation.NotDischarged || done != (receipt.Detail == "")) {
			t.Errorf("%v, receipt %v", o, receipt)
		}
		if done != (o.Err == nil) {
			t.Errorf("%v", o)
		} else if !done {
			all = false
			if !errors.Is(r.Err(), o.Err) || !strings.Contains(r.Err().Error(), o.Err.Error()) {
				t.Errorf("%v is not in %v", o.Err, r.Err())
			}
		}
	}
	if r.Permitted() && (!all || r.Err() != nil) {
		t.Errorf("permitted with %v, %v", r.Outcomes(), r.Err())
	}
}

func TestZeroReport(t *testing.T) {
	t.Parallel()
	var r obligations.Report
	if r.Permitted() || r.Err() != nil || len(r.Outcomes()) != 0 || len(r.Receipts()) != 0 {
		t.Errorf("the zero Report is %+v", r)
	}
}

// No caller can make a permit of a report by the values that it hands out.
func TestReportIsACopy(t *testing.T) {
	t.Parallel()
	r := obligations.Discharge(t.Context(), true, owe("a:other"), nil)
	r.Outcomes()[0] = obligations.Outcome{Status: obligations.Discharged}
	if r.Permitted() {
		t.Error("permitted")
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	var done []string
	r := obligations.Discharge(t.Context(), true, owe("a:fails b:other c:panics"), handlers(&done))
	const want = `obligation "a" of type "fails" failed: broken; obligation "b" of type "other" unknown: there is no handler for its type; obligation "c" of type "panics" failed: its handler panicked: a`
	if got := r.Err().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var p *obligations.Panic
	if !errors.As(r.Err(), &p) || p.Value != "a" || !strings.Contains(string(p.Stack), "discharge_test.go") {
		t.Errorf("no panic with its stack in %v", r.Err())
	}
}

// The caller going away denies, and silences nothing.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var done []string
		all := handlers(&done)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		all["cancels"] = func(context.Context, evaluation.Obligation) error { cancel(); return nil }
		all["looks"] = func(ctx context.Context, _ evaluation.Obligation) error {
			if ctx.Err() != nil || ctx.Value(key{}) != "trace" {
				t.Errorf("%v, %v", ctx.Err(), ctx.Value(key{}))
			}
			return nil
		}
		start := time.Now()
		r := obligations.Discharge(ctx, true, owe("a:cancels b:looks c:ok d:waits e:ok f:waits"), all)
		if got := statuses(r); got != "fddfff" || r.Permitted() || strings.Join(done, " ") != "c d e f" {
			t.Errorf("got %s, done %v, permitted %v", got, done, r.Permitted())
		}
		if took := time.Since(start); took != obligations.Grace {
			t.Errorf("it took %v", took)
		}
		for _, owed := range []string{"", "a:ok b:ok"} {
			r = obligations.Discharge(ctx, true, owe(owed), all)
			if r.Permitted() || !errors.Is(r.Err(), context.Canceled) {
				t.Errorf("%q: permitted %v, %v", owed, r.Permitted(), r.Err())
			}
			if r = obligations.Discharge(ctx, false, owe(owed), all); r.Permitted() || r.Err() != nil {
				t.Errorf("%q, deny: permitted %v, %v", owed, r.Permitted(), r.Err())
			}
		}
	})
}

func TestTypes(t *testing.T) {
	t.Parallel()
	var done []string
	if got := strings.Join(handlers(&done).Types(), ","); got != "broken,by itself,fails,late,ok,panics,panics2,slow,waits" {
		t.Error(got)
	}
	if got := obligations.Handlers(nil).Types(); got == nil || len(got) != 0 {
		t.Errorf("%#v", got) // it is declared, and null would declare nothing at all
	}
}

// A receipt classifies a failure, and repeats no text of a handler.
func TestReceiptsQuoteNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		says := func(err error) obligations.Handler {
			return func(context.Context, evaluation.Obligation) error { return fmt.Errorf("hunter2: %w", err) }
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all := obligations.Handlers{
			"ok": func(context.Context, evaluation.Obligation) error { return nil }, "fails": says(errBroken),
			"panics": func(context.Context, evaluation.Obligation) error { panic("hunter2") },
			"slow": obligations.Within(time.Second, func(ctx context.Context, _ evaluation.Obligation) error {
				<-ctx.Done()
				return says(ctx.Err())(ctx, evaluation.Obligation{})
			}),
			"ends": func(context.Context, evaluation.Obligation) error { cancel(); return nil },
		}
		r := obligations.Discharge(ctx, true, owe("a:ok b:fails c:panics d:slow e:other f: g:ok g:fails :ok h:ends i:ok"), all)
		want := map[string]string{
			"a": "", "b": "its handler failed", "c": "its handler panicked", "d": "its time was up", "e": "there is no handler for its type",
			"f": "it has no type", "g": "another obligation has its id", "h": "the decision was no longer waited for", "i": "",
		}
		for _, receipt := range r.Receipts() {
			if detail, known := want[receipt.ID]; !known || detail != receipt.Detail || (detail == "") != (receipt.Status == evaluation.Discharged) {
				t.Errorf("got %+v, want %q", receipt, detail)
			}
			delete(want, receipt.ID)
		}
		if len(want) > 0 {
			t.Errorf("there is no receipt of %v", want)
		}
	})
}

// A promise can be taken back, and what is not tried is not discharged.
func TestBreakAndForgo(t *testing.T) {
	t.Parallel()
	var done []string
	r := obligations.Discharge(t.Context(), true, owe("a:ok b:ok"), handlers(&done))
	for name, o := range map[string]evaluation.Obligation{"one of them": {ID: "a", Type: "ok"}, "another type": {ID: "a", Type: "redact"}, "another": {ID: "c", Type: "ok"}} {
		broken := r.Break(o, errBroken)
		owed := owe("a:ok b:ok")
		if want := "fd"; r.Owes(o) != (name != "another") || r.Owes(o) && statuses(broken) != want || !broken.Owes(o) {
			t.Errorf("%s: %s", name, statuses(broken))
		} else if !r.Owes(o) {
			owed = append(owed, o)
		}
		checkReport(t, broken, owed)
		if broken.Permitted() || !errors.Is(broken.Err(), errBroken) || !r.Permitted() {
			t.Errorf("%s: permitted %v, %v", name, broken.Permitted(), broken.Err())
		}
		if twice := broken.Break(o, errBroken); len(twice.Outcomes()) != len(owed) || twice.Permitted() {
			t.Errorf("%s, twice: %v", name, twice.Outcomes())
		}
		checkReceipt(t, broken, "its handler promised it, and it was not done")
	}
	done = nil
	forgone := obligations.Forgo(owe("a:ok b:fails"))
	checkReport(t, forgone, owe("a:ok b:fails"))
	checkReceipt(t, forgone, "it was not tried, because the act was denied for another reason")
	if forgone.Permitted() || obligations.Forgo(nil).Permitted() || len(done) > 0 {
		t.Errorf("permitted, or done %v", done)
	}
}

// checkReceipt fails unless a detail is in the receipts, and nothing that a caller said.
func checkReceipt(t *testing.T, r obligations.Report, detail string) {
	t.Helper()
	found := false
	for _, receipt := range r.Receipts() {
		found = found || receipt.Detail == detail
		if strings.Contains(receipt.Detail, errBroken.Error()) {
			t.Errorf("a receipt says %q", receipt.Detail)
		}
	}
	if !found {
		t.Errorf("the receipts are %v", r.Receipts())
	}
}
