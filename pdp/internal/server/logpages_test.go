package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

// somebody is a decision of a few tenants, subjects and resources.
func somebody(r *rand.Rand, id string) record.Entry {
	entity := func(kind string) jsontext.Value {
		return jsontext.Value(fmt.Sprintf(`{"type":%q,"id":"%s-%d"}`, kind, kind, r.IntN(4)))
	}
	return record.Entry{ID: id, Kind: format.KindDecision, Tenant: []string{"initech", "globex"}[r.IntN(2)], Caller: "key:pep",
		Request: &record.Request{Subject: entity("user"), Action: jsontext.Value(`{"name":"read"}`), Resource: entity("doc")},
		Decision: &record.Decision{Allow: r.IntN(2) == 0, Obligations: [][]evaluation.Obligation{nil, {{ID: "o", Type: "approval_required"}}}[r.IntN(2)], Determining: []string{fmt.Sprintf("p%d", r.IntN(3))},
			Discharged: []evaluation.Met{{ID: "ask", Type: "approval_required", Approval: fmt.Sprintf("approval-%d", r.IntN(3))}}}}
}

// somewhere picks a filter, of which each member is as likely to be set as not.
func somewhere(r *rand.Rand) url.Values {
	all := map[string]string{
		"tenant": "initech", "kind": "decision", "decision": []string{"allow", "waiting", "deny"}[r.IntN(3)], "subject": fmt.Sprintf("user/user-%d", r.IntN(4)),
		"resource": fmt.Sprintf("doc-%d", r.IntN(4)), "action": "read", "policy": fmt.Sprintf("p%d", r.IntN(3)), "from": "2026-01-02T03:04:05Z", "to": "2027-01-01T00:00:00Z",
		"approval": fmt.Sprintf("approval-%d", r.IntN(3)),
	}
	given := url.Values{}
	for _, name := range []string{"tenant", "kind", "decision", "subject", "resource", "action", "policy", "from", "to", "approval"} {
		if r.IntN(4) == 0 {
			given.Set(name, all[name])
		}
	}
	return given
}

type recordPage struct {
	Items []jsontext.Value `json:"items"`
	Next  string           `json:"next"`
	More  bool             `json:"more"`
}

// walk reads pages of changing sizes until there are no more, and looks whether each
// record comes once, in order.
func (o *office) walk(r *rand.Rand, filter url.Values, order string) (lines []string, next string) {
	o.t.Helper()
	last := -1
	for more, query := true, filter; more; {
		query.Set("order", order)
		query.Set("limit", fmt.Sprint(1+r.IntN(40)))
		var p recordPage
		must(o.t, json.Unmarshal([]byte(o.get("/v1/decisions?"+query.Encode())), &p))
		for _, item := range p.Items {
			var record struct{ Sequence int }
			must(o.t, json.Unmarshal(item, &record))
			if last >= 0 && (record.Sequence > last) != (order == "oldest") {
				o.t.Errorf("%v: record %d comes after %d", filter, record.Sequence, last)
			}
			last, lines = record.Sequence, append(lines, string(item))
		}
		more, next = p.More, p.Next
		query.Set("cursor", next)
	}
	return lines, next
}

// scan is what a reading of the whole log finds.
func (o *office) scan(f record.Filter, size uint64) (lines []string) {
	o.t.Helper()
	for record, err := range o.Log().Records(o.t.Context(), 0, size) {
		must(o.t, err)
		if passes, err := f.Matches(record.Line); err != nil || passes {
			must(o.t, err)
			lines = append(lines, string(record.Line))
		}
	}
	return lines
}

// Pages hold what a scan of the whole log finds, no more and no less, whatever the
// filter, the order and the sizes, and whatever is recorded meanwhile.
func TestPagesAreAScan(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	ctx, cancel := context.WithCancel(t.Context())
	var appending sync.WaitGroup
	for n := range 2 {
		appending.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			for i := 0; ctx.Err() == nil && i < 1500; i++ {
				if err := o.Log().Append(context.Background(), []record.Entry{somebody(r, fmt.Sprintf("w%d-%d", n, i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range night.Cases(80) {
		filter, reader := somewhere(r), []string{"auditor", "initech-auditor"}[r.IntN(2)]
		var tenants []string
		if reader != "auditor" {
			tenants = []string{"initech"}
		}
		f := filterOf(t, filter)
		f.Tenants = tenants
		before := o.Log().Size()
		for _, order := range []string{"oldest", "newest"} {
			got, _ := o.as(reader).walk(r, cloned(filter), order)
			after := o.Log().Size()
			if order == "newest" {
				slices.Reverse(got)
			}
			// All that was there before, and of what came meanwhile the beginning.
			least, most := o.scan(f, before), o.scan(f, after)
			if len(got) < len(least) || len(got) > len(most) || !slices.Equal(got, most[:len(got)]) {
				t.Fatalf("%v, %s: %d records, a scan has %d to %d", filter, order, len(got), len(least), len(most))
			}
		}
	}
	cancel()
	appending.Wait()
	// Where there was no more, the cursor goes on with what comes.
	seen, next := o.walk(r, url.Values{}, "oldest")
	id := o.ask("initech", evaluationPath, tenantQuestion)
	more, _ := o.walk(r, url.Values{"cursor": {next}}, "oldest")
	if len(seen) == 0 || len(more) != 1 || !strings.Contains(more[0], id) {
		t.Errorf("after %d records: got %v, want %s", len(seen), more, id)
	}
}

func cloned(v url.Values) url.Values {
	c := url.Values{}
	for name := range v {
		c.Set(name, v.Get(name))
	}
	return c
}

// filterOf is a query as the log's own filter.
func filterOf(t *testing.T, v url.Values) (f record.Filter) {
	t.Helper()
	members := map[string]string{}
	for name := range v {
		members[name] = v.Get(name)
	}
	text, err := json.Marshal(members)
	must(t, err)
	must(t, json.Unmarshal(text, &f))
	return f
}

// A page of large records ends early, and the next one goes on where it ended.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.Client = ownClient() // megabytes need not be held to a schema
	for n := range 11 {
		o.append(largeEntry(n))
	}
	for _, order := range []string{"oldest", "newest"} {
		records, pages := 0, 0
		for more, cursor := true, ""; more; pages++ {
			body := o.get("/v1/decisions?action=large&order=" + order + cursor)
			if len(body) > 5<<20 {
				t.Errorf("a page of %d bytes", len(body))
			}
			var p recordPage
			must(t, json.Unmarshal([]byte(body), &p))
			if len(p.Items) == 0 {
				t.Fatal("a page without records")
			}
			records, more, cursor = records+len(p.Items), p.More, "&cursor="+p.Next
		}
		if records != 11 || pages != 3 {
			t.Errorf("%s: %d records in %d pages", order, records, pages)
		}
	}
}
