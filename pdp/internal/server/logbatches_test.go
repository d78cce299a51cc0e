package server_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// batchEntries are the record of a batch and n items of it, of which every third inherits
// nothing, and the others a subject's properties and the context.
func batchEntries(id, tenant, caller, context string, n int) []record.Entry {
	entries := []record.Entry{{ID: id, Kind: format.KindBatch, Tenant: tenant, Caller: caller, Request: &record.Request{
		Subject: jsontext.Value(`{"properties":{"team":"` + tenant + `-team"}}`), Context: jsontext.Value(context),
	}}}
	for i := range n {
		e := record.Entry{ID: fmt.Sprintf("%s.%d", id, i), Kind: format.KindDecision, Tenant: tenant, Caller: caller,
			Request: &record.Request{Subject: jsontext.Value(`{"type":"user","id":"` + tenant + `-user"}`), Action: jsontext.Value(`{"name":"inherit"}`),
				Resource: jsontext.Value(fmt.Sprintf(`{"type":"doc","id":"doc-%d"}`, i))},
			Decision: &record.Decision{Allow: i%2 == 0, Obligations: []evaluation.Obligation{{ID: "tell", Type: "notification"}}}}
		if i%3 != 0 {
			e.Inherits = []string{"subject", "context"}
		}
		entries = append(entries, e)
	}
	return entries
}

func (o *office) appendBatch(entries []record.Entry) {
	o.t.Helper()
	must(o.t, o.Log().Append(o.t.Context(), entries))
}

type batchPage struct {
	recordPage
	Batches []jsontext.Value `json:"batches"`
	Gone    []string         `json:"batches_gone"`
}

// batchPages asks for all pages of a query, and puts each item together with what its page
// says that it inherits: it returns the requests by their ids, and whose batch is gone.
func (o *office) batchPages(query string) (requests map[string]string, gone []string, pages int) {
	o.t.Helper()
	requests = map[string]string{}
	for more, cursor := true, ""; more; pages++ {
		body := o.get("/v1/decisions?" + query + cursor)
		if len(body) > 9<<20 {
			o.t.Errorf("a page of %d bytes", len(body))
		}
		var p batchPage
		must(o.t, json.Unmarshal([]byte(body), &p))
		batches := map[string][]byte{}
		for _, batch := range p.Batches {
			i, err := record.Parse(batch)
			must(o.t, err)
			if batches[i.ID] != nil || i.Kind != format.KindBatch {
				o.t.Errorf("the page has %s twice, or it is no batch's", i.ID)
			}
			batches[i.ID] = batch
		}
		used := map[string]bool{}
		for _, line := range p.Items {
			i, err := record.Parse(line)
			must(o.t, err)
			used[i.BatchID()] = true
			if slices.Contains(p.Gone, i.BatchID()) {
				gone = append(gone, i.ID)
				continue
			}
			r, err := record.Resolve(line, record.Record{Line: batches[i.BatchID()]})
			must(o.t, err)
			if r.Gone != nil {
				o.t.Errorf("%s lacks %v, and the page does not say so", i.ID, r.Gone)
			}
			requests[i.ID] = string(r.Asked)
		}
		for id := range batches {
			if !used[id] {
				o.t.Errorf("the page has the record of %s, and no item needs it", id)
			}
		}
		more, cursor = p.More, "&cursor="+p.Next
	}
	return requests, gone, pages
}

// A page has what its items inherit, whatever the filter and the order, each record of a
// batch once; and where that is redacted the page says so. No tenant gets another's.
func TestPagesHaveWhatItemsInherit(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	for n := range 5 {
		o.appendBatch(batchEntries(fmt.Sprintf("i%d", n), "initech", "key:initech-pep", fmt.Sprintf(`{"purpose":"initech-%d"}`, n), 9))
		o.appendBatch(batchEntries(fmt.Sprintf("g%d", n), "globex", "key:globex-pep", fmt.Sprintf(`{"purpose":"globex-%d"}`, n), 9))
	}
	for _, query := range []string{"action=inherit", "action=inherit&order=oldest&limit=7", "action=inherit&limit=1", "decision=allow&action=inherit", "resource=doc-4"} {
		requests, gone, _ := o.batchPages(query)
		items := 0
		for id, request := range requests {
			batch, item, _ := strings.Cut(id, ".")
			if whole := strings.Contains(request, `-team"}`) && strings.Contains(request, `"purpose"`); whole != strings.Contains("1 2 4 5 7 8", item) {
				t.Errorf("%s: %s is %s", query, id, request)
			} else if whole && !strings.Contains(request, "-"+batch[1:]+`"`) {
				t.Errorf("%s: %s has the context of another batch: %s", query, id, request)
			}
			items++
		}
		if items < 10 || gone != nil {
			t.Errorf("%s: %d items, gone: %v", query, items, gone)
		}
	}
	if body := o.as("initech-auditor").get("/v1/decisions?limit=1000"); strings.Contains(body, "globex") || !strings.Contains(body, "initech-team") {
		t.Error("another tenant's records, or none of one's own")
	}
	replied(t, o.Do("POST", "/v1/decisions/i3/redaction", `{"reason":"erasure"}`), 204)
	_, gone, _ := o.batchPages("action=inherit&limit=5")
	slices.Sort(gone)
	if want := []string{"i3.1", "i3.2", "i3.4", "i3.5", "i3.7", "i3.8"}; !slices.Equal(gone, want) {
		t.Errorf("gone: %v, want %v", gone, want)
	}
}

// What items inherit counts in a page: many small items that inherit much, each from
// another batch, make many pages and no large one.
func TestPagesOfWhatItemsInheritAreBounded(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.Client = ownClient() // megabytes need not be held to a schema
	large := `{"purpose":"` + strings.Repeat("x", 700<<10) + `"}`
	for n := range 12 {
		o.appendBatch(batchEntries(fmt.Sprintf("i%d", n), "initech", "key:initech-pep", large, 3))
	}
	for _, order := range []string{"oldest", "newest"} {
		requests, gone, pages := o.batchPages("action=inherit&limit=1000&order=" + order)
		if len(requests) != 36 || gone != nil || pages < 2 || pages > 4 {
			t.Errorf("%s: %d items in %d pages, gone: %v", order, len(requests), pages, gone)
		}
	}
}

// A record is answered as it is stored, with the request whole beside it; once the record
// of its batch is redacted the answer says which members are gone.
func TestARecordIsAnsweredWithWhatItInherits(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.appendBatch(batchEntries("b1", "initech", "key:initech-pep", `{"purpose":"payroll"}`, 3))
	log, err := remote.New(o.URL, httpclient.Options{Credential: strings.TrimPrefix(o.key["auditor"], "Bearer ")})
	must(t, err)
	t.Cleanup(log.Close)
	type answer struct {
		Record jsontext.Value `json:"record"`
		Batch  *struct {
			Record   jsontext.Value `json:"record"`
			Sequence uint64         `json:"sequence"`
			LeafHash string         `json:"leaf_hash"`
		} `json:"batch"`
		Request jsontext.Value `json:"request"`
		Gone    []string       `json:"inherited_gone"`
	}
	get := func(id string) (a answer) {
		must(t, json.Unmarshal([]byte(o.as("initech-auditor").get("/v1/decisions/"+id)), &a))
		record, err := o.Log().ByID(id)
		must(t, err)
		if string(a.Record) != string(record.Line) {
			t.Errorf("%s is not answered as it is stored: %s", id, a.Record)
		}
		return a
	}
	const whole = `{"subject":{"type":"user","id":"initech-user","properties":{"team":"initech-team"}},"action":{"name":"inherit"},"resource":{"type":"doc","id":"doc-1"},"context":{"purpose":"payroll"}}`
	batch, err := o.Log().ByID("b1")
	must(t, err)
	if a := get("b1.1"); string(a.Request) != whole || a.Gone != nil || a.Batch == nil || string(a.Batch.Record) != string(batch.Line) || a.Batch.Sequence != batch.Sequence || a.Batch.LeafHash != batch.Leaf.String() {
		t.Errorf("got %+v", a)
	}
	for _, id := range []string{"b1", "b1.0"} {
		if a := get(id); a.Batch != nil || a.Request != nil || a.Gone != nil {
			t.Errorf("%s inherits nothing: got %+v", id, a)
		}
	}
	if shown, err := log.Show(t.Context(), "b1.1"); err != nil || string(shown.Record.Asked) != whole || string(shown.Record.Batch.Line) != string(batch.Line) {
		t.Errorf("from afar: %+v, %v", shown, err)
	}
	replied(t, o.Do("POST", "/v1/decisions/b1/redaction", `{"reason":"erasure"}`), 204)
	if a := get("b1.1"); a.Batch != nil || !slices.Equal(a.Gone, []string{"subject", "context"}) || strings.Contains(string(a.Request), "payroll") {
		t.Errorf("redacted: got %+v", a)
	}
	if shown, err := log.Show(t.Context(), "b1.1"); err != nil || !slices.Equal(shown.Record.Gone, []string{"subject", "context"}) {
		t.Errorf("redacted, from afar: %+v, %v", shown, err)
	}
	if got := o.get("/v1/decisions/" + url.PathEscape("b1.2") + "/proof"); strings.Contains(got, `"id":"b1",`) || !strings.Contains(got, `"id":"b1.2"`) {
		t.Errorf("its proof: %s", got)
	}
}

// A secret that an item inherits is masked in what is said of the item later, as one of
// its own is: in the detail of a receipt, and in the reason of a redaction. Where the
// record of the batch is gone nobody can tell it any more, and the detail is left out.
func TestInheritedSecretsAreMaskedInWhatIsSaidLater(t *testing.T) {
	t.Parallel()
	const secret = "hunter-0001-zebra"
	data := t.TempDir()
	s := pdptest.Start(t, obliging(), withData(data), func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	const caller = "pep:decide log.read log.admin"
	question := strings.Replace(strings.Replace(obligingQuestion, "ACTION", "read", 1), `"context":{`, `"context":{"password":"`+secret+`",`, 1)
	asked := s.Post(evaluationPath, question, "Authorization", caller)
	record, err := s.Log().ByID(asked.Header.Get("X-Decision-Id"))
	must(t, err)
	var masked struct {
		Caller  string
		Request struct{ Context jsontext.Value }
	}
	must(t, json.Unmarshal(record.Line, &masked))
	if strings.Contains(string(masked.Request.Context), secret) || !strings.Contains(string(masked.Request.Context), "masked:") {
		t.Fatalf("got %s", masked.Request.Context)
	}
	for _, id := range []string{"b1", "b2"} {
		err = s.Log().Append(t.Context(), batchEntries(id, "default", masked.Caller, string(masked.Request.Context), 3))
		must(t, err)
	}
	say := func(path, body string) {
		t.Helper()
		if got := s.Post(path, body, "Authorization", caller); got.Status != 204 {
			t.Fatalf("%s: got %d %s", path, got.Status, got.Body)
		}
	}
	say(receiptPath("b1.1"), reported("tell:failed:login with "+secret+": 401"))
	must(t, s.Log().Redact(t.Context(), "", "b2", "on request"))
	say(receiptPath("b2.1"), reported("tell:failed:login with "+secret+": 401"))
	say("/v1/decisions/b1.2/redaction", `{"reason":"it was `+secret+` again"}`)
	stopAndWait(t, s)
	for _, file := range everyFile(t, data) {
		if strings.Contains(file[1], secret) {
			t.Errorf("%s holds the secret", file[0])
		}
	}
	all, details := lines(t, data), ""
	for _, l := range all {
		details += fmt.Sprintln(l.Kind, l.Details)
	}
	for _, want := range []string{"detail:login with masked:", "reason:it was masked:", "decision:b2.1 obligations:[map[id:tell status:failed]]"} {
		if !strings.Contains(details, want) {
			t.Errorf("%q is nowhere in\n%s", want, details)
		}
	}
}
