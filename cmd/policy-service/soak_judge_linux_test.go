package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/inside/format"
)

// A judge brings each answer together with its records, and compares it with what a
// second instance, without index and log, says by the bundle that the records name.
type judge struct {
	wrong func(format string, args ...any)

	mu      sync.Mutex
	second  map[string]*pdp.PDP // by digest
	reigns  []reign
	cases   map[string]*hearing // that lack their answer or a record, by id
	last    int64               // sequence of the last record that came
	events  map[string]int      // administrative records by event
	retired int                 // segments
	judged  map[string]int      // answers by kind
	allowed int
	// places are for answers that wait for their records: who asks takes one, so that
	// nobody asks faster than what is said can be judged.
	places chan struct{}
}

// mostWaiting is more than are ever asked at once.
const mostWaiting = 8192

// A reign is the time during which a bundle may have been in force: from before it was
// put there until the next was seen in force.
type reign struct {
	digest       string
	since, until time.Time // until is zero for the last
}

// A hearing is what is there of one answer so far.
type hearing struct {
	answer  *answer
	records int
	bundle  string
}

func newJudge(wrong func(string, ...any)) *judge {
	return &judge{wrong: wrong, second: map[string]*pdp.PDP{}, cases: map[string]*hearing{}, last: -1, events: map[string]int{}, judged: map[string]int{}, places: make(chan struct{}, mostWaiting)}
}

// know adds a bundle to those that can be judged by.
func (j *judge) know(bundle *pdp.Bundle) {
	j.second[bundle.Digest()] = pdp.Of(bundle.WithoutIndex(), pdp.Options{})
}

// comes says that from now on a bundle may be in force, is that it is the only one.
func (j *judge) comes(digest string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reigns = append(j.reigns, reign{digest: digest, since: time.Now()})
}

func (j *judge) is() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.reigns) > 1 {
		j.reigns[len(j.reigns)-2].until = time.Now()
	}
}

// mayDecide reports whether a bundle may have been in force during a request.
func (j *judge) mayDecide(digest string, a *answer) bool {
	for _, r := range j.reigns {
		if r.digest == digest && !r.since.After(a.ended) && (r.until.IsZero() || !r.until.Before(a.began)) {
			return true
		}
	}
	return false
}

// answered hands an answer over.
func (j *judge) answered(a answer) {
	if a.kind == "receipt" {
		a.id = "receipt of " + a.id
	}
	j.mu.Lock()
	h := j.hearing(a.id)
	twice := h.answer != nil
	h.answer = &a
	ready := j.ready(a.id, h)
	j.mu.Unlock()
	if twice || a.id == "" {
		j.wrong("two answers have the id %q, or one has none", a.id)
	}
	if ready {
		j.decide(h)
	}
}

// record takes the next record of the log. Whoever has its lines hands them over in order.
func (j *judge) record(sequence int64, line []byte) error {
	var r struct {
		ID, Kind, Bundle, Event string
		Details                 struct {
			Decision string
			Files    []struct{} // of segments
		}
	}
	// Details are of many forms, and what does not fit is none of ours.
	if err := json.Unmarshal(line, &r, json.MatchCaseInsensitiveNames(true)); err != nil && r.Event == "" {
		return fmt.Errorf("record %d cannot be read: %w", sequence, err)
	}
	j.mu.Lock()
	if sequence != j.last+1 {
		j.wrong("after record %d comes record %d", j.last, sequence)
	}
	j.last = sequence
	id, _, _ := strings.Cut(r.ID, ".")
	switch r.Kind {
	case format.KindReceipt:
		id = "receipt of " + r.Details.Decision
	case format.KindBatch: // what its items inherit: it answers nothing
		j.mu.Unlock()
		return nil
	case format.KindAdmin:
		j.events[r.Event]++
		if r.Event == format.EventRetired {
			j.retired += len(r.Details.Files)
		}
		j.mu.Unlock()
		return nil
	}
	h := j.hearing(id)
	h.records++
	h.bundle = r.Bundle
	ready := j.ready(id, h)
	j.mu.Unlock()
	if ready {
		j.decide(h)
	}
	return nil
}

// answers is how many were judged.
func (j *judge) answers() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, of := range j.judged {
		n += of
	}
	return n
}

func (j *judge) hearing(id string) *hearing {
	h := j.cases[id]
	if h == nil {
		h = &hearing{}
		j.cases[id] = h
	}
	return h
}

// ready takes a case off the list once its answer and all its records are there.
func (j *judge) ready(id string, h *hearing) bool {
	if h.answer == nil || h.records != h.answer.records() {
		return false
	}
	delete(j.cases, id)
	if h.answer.kind != "receipt" {
		j.leave()
	}
	j.judged[h.answer.kind]++
	if strings.Contains(h.answer.body, "true") {
		j.allowed++
	}
	return true
}

// leave makes a place free.
func (j *judge) leave() {
	select {
	case <-j.places:
	default: // nobody took one
	}
}

// records is how many records an answer has: a batch one for each item.
func (a *answer) records() int {
	if a.kind != "batch" {
		return 1
	}
	var items struct{ Evaluations []struct{} }
	_ = json.Unmarshal([]byte(a.body), &items, json.MatchCaseInsensitiveNames(true)) // what cannot be read is found to be wrong
	return len(items.Evaluations)
}

func (j *judge) decide(h *hearing) {
	if h.answer.kind == "receipt" {
		return // it has no content: that it is on record is all
	}
	j.mu.Lock()
	second, may := j.second[h.bundle], j.mayDecide(h.bundle, h.answer)
	j.mu.Unlock()
	if second == nil || !may {
		j.wrong("%s %s was decided by bundle %q, which was not in force at the time", h.answer.kind, h.answer.id, h.bundle)
		return
	}
	if text := differs(second, h.answer); text != "" {
		j.wrong("%s %s, decided by %s: %s\n%s\n%s", h.answer.kind, h.answer.id, h.bundle, text, h.answer.path, h.answer.question.body)
	}
}

// differs says how an answer is not that of the second instance.
func differs(second *pdp.PDP, a *answer) string {
	want, err := a.answerOf(second)
	switch {
	case err != nil:
		return fmt.Sprintf("answered %s, and the second instance says %v", a.body, err)
	case want != a.body:
		return fmt.Sprintf("answered\n%s\nand the second instance says\n%s", a.body, want)
	}
	return ""
}

// answerOf puts a question to a library, as the service would.
func (a *answer) answerOf(p *pdp.PDP) (string, error) {
	q, body, limits := &a.question, []byte(a.question.body), evaluation.DefaultLimits()
	caller, registered := "key:"+q.pep.name, q.pep.obligations != nil
	decide := func(request evaluation.Request, err error) (string, error) {
		if err != nil {
			return "", err
		}
		d, err := p.Evaluate(context.Background(), pdp.Call{Request: request, Asker: evaluation.Asker{Name: caller, Registered: registered, Obligations: q.pep.obligations}, Explain: q.explain})
		if err != nil {
			return "", err
		}
		text, err := request.Shape.Answer(d)
		return string(text), err
	}
	switch {
	case q.search != "":
		return a.searchOf(p, caller, registered)
	case q.kind == "native":
		return decide(evaluation.DecodeNative(body, limits))
	case q.kind == "evaluation":
		return decide(evaluation.DecodeAuthZEN(body, q.tenant, limits))
	}
	batch, err := evaluation.DecodeBatch(body, q.tenant, limits)
	if err != nil {
		return "", err
	}
	d, err := p.EvaluateBatch(context.Background(), pdp.BatchCall{Batch: batch, Asker: evaluation.Asker{Name: caller, Registered: registered, Obligations: q.pep.obligations}, Explain: q.explain})
	if err != nil {
		return "", err
	}
	text, err := evaluation.Answers(d.Items)
	return string(text), err
}

// searchOf is the same page with the same token, which nobody else can make; but where
// there is none, the search must be at its end.
func (a *answer) searchOf(p *pdp.PDP, caller string, registered bool) (string, error) {
	search, err := evaluation.DecodeSearch(a.search, []byte(a.question.body), a.tenant, evaluation.DefaultLimits())
	if err != nil {
		return "", err
	}
	call := pdp.SearchCall{Search: search, Asker: evaluation.Asker{Name: caller, Registered: registered, Obligations: a.pep.obligations}, After: a.after, Limit: cmp.Or(a.limit, evaluation.MaxPage)}
	want, err := p.Search(context.Background(), call)
	if err != nil {
		return "", err
	}
	var got found
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		return "", err
	}
	if got.Page == nil {
		if want.More || search.Page.Sent {
			return "", errors.New("that there is a page to tell of")
		}
		return string(evaluation.AnswerSearch(a.search, want.Draft, want.Found, nil)), nil
	}
	if got.Page.Next == "" && want.More {
		call.After, call.Limit = want.Last, 1
		if rest, err := p.Search(context.Background(), call); err != nil || len(rest.Found) > 0 {
			return "", fmt.Errorf("that it goes on with %v, %w", rest.Found, err)
		}
	}
	return string(evaluation.AnswerSearch(a.search, want.Draft, want.Found, &got.Page.Next)), nil
}

// close finds what has no answer, or is on no record.
func (j *judge) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, h := range j.cases {
		if h.answer == nil {
			j.wrong("%d records of %s are there, and nobody was answered", h.records, id)
		} else {
			j.wrong("%s %s has %d records and is to have %d", h.answer.kind, id, h.records, h.answer.records())
		}
	}
}

// TestSoakJudge has the judge find each thing that it is there to find, and nothing else.
func TestSoakJudge(t *testing.T) {
	bundle := func(effect string) *pdp.Bundle {
		b, problems := pdp.Load(pdp.FS(fstest.MapFS{
			"bundle.yaml":        {Data: []byte("allow_trivial: true\n")},
			"p.cedar":            {Data: []byte(`permit (principal, action, resource == doc::"b"); ` + effect + ` (principal, action, resource == doc::"a");`)},
			"entities/docs.json": {Data: []byte(`[{"uid":{"type":"doc","id":"a"},"attrs":{},"parents":[]},{"uid":{"type":"doc","id":"b"},"attrs":{},"parents":[]}]`)},
		}))
		if problems.Refuse() {
			t.Fatal(problems)
		}
		return b
	}
	yes, no := bundle("permit"), bundle("forbid")
	who := &pep{name: "gateway"}
	ask := func(kind, body, said string) answer {
		return answer{question: question{kind: kind, body: body, pep: who}, id: "x", body: said, began: time.Now(), ended: time.Now()}
	}
	one := ask("evaluation", `{"subject":{"type":"user","id":"u"},"action":{"name":"read"},"resource":{"type":"doc","id":"a"}}`, `{"decision":true}`)
	batch := ask("batch", `{"subject":{"type":"user","id":"u"},"action":{"name":"read"},"resource":{"type":"doc"},"evaluations":[{"resource":{"id":"a"}},{"resource":{"id":"b"}}]}`, `{"evaluations":[{"decision":true},{"decision":true}]}`)
	search := func(said string) answer {
		a := ask("resource search", `{"subject":{"type":"user","id":"u"},"action":{"name":"read"},"resource":{"type":"doc"},"page":{"limit":1}}`, said)
		a.search, a.limit = evaluation.ResourceSearch, 1
		return a
	}
	said := func(a answer, body string) answer { a.body = body; return a }
	record := func(id, kind string, b *pdp.Bundle) string {
		return fmt.Sprintf(`{"id":%q,"kind":%q,"bundle":%q}`, id, kind, b.Digest())
	}
	for _, c := range []struct {
		what    string
		answers []answer
		records []string
		finds   string
	}{
		{"all is well", []answer{one}, []string{record("x", "decision", yes)}, ""},
		{"the answer is another", []answer{said(one, `{"decision":false}`)}, []string{record("x", "decision", yes)}, "the second instance says"},
		{"another bundle has decided", []answer{one}, []string{record("x", "decision", no)}, "not in force"},
		{"there is no record", []answer{one}, nil, "has 0 records and is to have 1"},
		{"there is no answer", nil, []string{record("x", "decision", yes)}, "nobody was answered"},
		{"there are two answers", []answer{one, one}, []string{record("x", "decision", yes)}, "two answers"},
		{"there are two records", []answer{one}, []string{record("x", "decision", yes), record("x", "decision", yes)}, "nobody was answered"},
		{"a batch is whole", []answer{batch}, []string{record("x.0", "decision", yes), record("x.1", "decision", yes)}, ""},
		{"a batch lacks a record", []answer{batch}, []string{record("x.0", "decision", yes)}, "has 1 records and is to have 2"},
		{"a page goes on", []answer{search(`{"page":{"next_token":"t"},"results":[{"type":"doc","id":"a"}]}`)}, []string{record("x", "search", yes)}, ""},
		{"a page ends too early", []answer{search(`{"page":{"next_token":""},"results":[{"type":"doc","id":"a"}]}`)}, []string{record("x", "search", yes)}, "that it goes on"},
		{"a page has too much", []answer{search(`{"page":{"next_token":"t"},"results":[{"type":"doc","id":"a"},{"type":"doc","id":"c"}]}`)}, []string{record("x", "search", yes)}, "the second instance says"},
		{"a receipt is on record", []answer{ask("receipt", "", "")}, []string{`{"id":"r","kind":"receipt","details":{"decision":"x"}}`}, ""},
		{"a receipt is not", []answer{ask("receipt", "", "")}, nil, "receipt of x has 0 records"},
	} {
		var finds []string
		j := newJudge(func(format string, args ...any) { finds = append(finds, fmt.Sprintf(format, args...)) })
		j.know(yes)
		j.know(no)
		// What is asked is asked before no comes to be in force.
		j.reigns = []reign{{digest: yes.Digest()}, {digest: no.Digest(), since: time.Now().Add(time.Hour)}}
		for _, a := range c.answers {
			j.answered(a)
		}
		for n, line := range c.records {
			if err := j.record(int64(n), []byte(line)); err != nil {
				t.Error(err)
			}
		}
		j.close()
		if c.finds == "" && len(finds) > 0 || c.finds != "" && !strings.Contains(strings.Join(finds, "\n"), c.finds) {
			t.Errorf("%s: it finds %q, not %q", c.what, finds, c.finds)
		}
	}
}
