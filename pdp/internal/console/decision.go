package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server/auth"
)

// mostSteps is how many steps of an approval request, questions of a batch, and masked places a page shows.
const mostSteps = 50

// recordStep has the details of a step that pages show.
type recordStep struct {
	Approval   string `json:"approval"`
	Capability string `json:"capability"`
	Decision   string `json:"decision"` // that waits
	UsedBy     string `json:"used_by"`
	By         string `json:"by"`
	To         string `json:"to"`
	Via        string `json:"via"`
	Reason     string `json:"reason"`
	// Justification is the reason that came with the approval request.
	Justification map[string]jsontext.Value `json:"justification"`
}

// stepOf is the step that a record is; a record that is none has an empty one.
func stepOf(r *remote.Recorded) (s recordStep) {
	if len(r.Details) == 0 || json.Unmarshal(r.Details, &s) != nil {
		return recordStep{}
	}
	return s
}

// evidence are the answers of the API about one record. A failed one has an error; without the record there is no page.
type evidence struct {
	id        string
	record    remote.Decision
	explained remote.Explained
	signed    remote.Checkpoint
	approvals []string // ids
	steps     remote.Page
	mayOpen   map[string]bool // approval requests that the person may see

	noRecord, noExplanation, noCheckpoint, noSteps error
}

// ask asks for the record, and then for all else at once.
func (e *evidence) ask(ctx context.Context, v *visit) {
	if e.record, e.noRecord = v.records.Decision(ctx, e.id); e.noRecord != nil {
		return
	}
	var g errgroup.Group
	r := &e.record.Record
	if v.explicable(r) {
		g.Go(func() error { e.explained, e.noExplanation = v.records.Explain(ctx, e.id); return nil })
	}
	g.Go(func() error { e.signed, e.noCheckpoint = v.records.Signed(ctx); return nil })
	g.Go(func() error { e.story(ctx, v); return nil })
	_ = g.Wait() // each error has its place
}

// explicable reports if a record is of a decision that this person may have explained.
func (v *visit) explicable(r *remote.Recorded) bool {
	return r.Kind == remote.KindDecision && r.Answer() != "" && v.me.May(explainRight, r.Tenant)
}

// story finds the approval requests of a record, with the steps of the first one.
func (e *evidence) story(ctx context.Context, v *visit) {
	r := &e.record.Record
	if e.approvals = r.Approvals(); len(e.approvals) == 0 && r.Kind == remote.KindDecision {
		e.approvals = e.filedFor(ctx, v)
	}
	slices.Sort(e.approvals)
	e.approvals = slices.Compact(e.approvals)
	e.mayOpen = map[string]bool{}
	if len(e.approvals) == 0 {
		return
	}
	q := url.Values{"approval": {e.approvals[0]}, "order": {"oldest"}, "limit": {strconv.Itoa(mostSteps)}}
	e.steps, e.noSteps = v.records.Page(ctx, q)
	for _, id := range e.approvals[:min(len(e.approvals), fewPolicies)] {
		if !page.IDOf(id).None() && v.me.May(string(auth.Approve), r.Tenant) {
			_, err := v.api.Get(ctx, id, 0)
			e.mayOpen[id] = err == nil
		}
	}
}

// filedFor is the approval request that was filed for a decision. Its record names the decision, and stands before that, or
// after it if the approval was offered.
func (e *evidence) filedFor(ctx context.Context, v *visit) []string {
	r := &e.record.Record
	if r.Answer() == string(page.Allow) || r.Names.Subject.ID == "" {
		return nil
	}
	for _, order := range []string{"newest", "oldest"} {
		filed, err := v.records.Page(ctx, url.Values{
			"kind": {remote.KindApproval}, "event": {"filed"}, "tenant": {r.Tenant}, "order": {order}, "limit": {strconv.Itoa(onPage)},
			"subject": {refOf(r.Names.Subject.Type, r.Names.Subject.ID)}, "cursor": {strconv.FormatUint(e.record.Sequence, 10)},
		})
		if err != nil {
			e.noSteps = err
			return nil
		}
		for n := range filed.Records {
			if step := stepOf(&filed.Records[n]); step.Decision == r.ID {
				return []string{step.Approval}
			}
		}
	}
	return nil
}

// saidSteps are the steps of an approval request that stand at the top of the page, in words: votes, and
// the ends of voting.
var saidSteps = map[string]page.Label{
	"approve": "Approved", "deny": "Denied", "delegate": "Delegated", "lapsed": "A vote lapsed",
	"revoked": "Taken back", "cancelled": "Withdrawn", "expired": "Expired", "redacted": "Redacted",
}

// decision is the page of one record.
func (v *visit) decision() {
	id := page.RecordIDOf(v.r.PathValue("id"))
	if id.None() || len(v.me.Where(logRead)) == 0 {
		v.problem(http.StatusNotFound)
		return
	}
	e := evidence{id: id.String()}
	e.ask(v.r.Context(), v)
	for _, err := range []error{e.noExplanation, e.noCheckpoint, e.noSteps} {
		if httpclient.StatusOf(err) == http.StatusUnauthorized {
			v.fail(err)
			return
		}
	}
	view := page.Decision{Layout: v.layout("Record"), ID: id, Heading: "Record"}
	view.Layout.About = id
	switch status := httpclient.StatusOf(e.noRecord); {
	case status == http.StatusGone:
		view.Gone, view.Heading = true, "The content of this record was removed"
		v.show(http.StatusGone, view)
		return
	case e.noRecord != nil:
		v.fail(e.noRecord)
		return
	}
	r := &e.record.Record
	switch view.Answer = page.StatusOf(r.Answer()); {
	case r.Kind == remote.KindDecision:
		view.Heading = "Decision"
	case r.Kind == remote.KindPossible:
		view.Heading = "Question what is possible"
	}
	view.At, view.Facts = v.moment(r.Time), v.recordFacts(&e)
	sent := sentOf(r)
	view.Says = page.Of(whyOf(r, sent))
	view.Questions, view.MoreQuestions = v.questionsIn(r)
	view.Sent, view.Masked = sentIn(r, sent)
	view.MoreMasked = len(r.Masked) - len(view.Masked)
	view.Why = v.why(&e)
	view.Owed = owedIn(&e)
	for n := range e.steps.Records {
		of := &e.steps.Records[n]
		step := v.storyStep(of, r.ID)
		view.Steps = append(view.Steps, step)
		if words := saidSteps[of.Event]; words != "" {
			view.Said = append(view.Said, page.SaidStep{RecordStep: step, Name: page.Label(of.Event), Words: words})
		}
		if view.Says.Empty() {
			view.Says = page.Of(whyOf(of, sentOf(of)))
		}
	}
	if view.MoreSteps = e.steps.More; view.MoreSteps {
		view.StepsLink = v.recordsBy(url.Values{"approval": {e.approvals[0]}})
	}
	view.NoSteps = e.noSteps != nil
	view.Proof = v.proof(&e)
	view.Whole = page.StoredOf(r.Line)
	v.show(http.StatusOK, view)
}

// recordFacts are the facts of a record that have a word each.
func (v *visit) recordFacts(e *evidence) (all []page.Fact) {
	r := &e.record.Record
	add := func(name page.Label, value string, note page.Label, links ...page.FactLink) {
		if value != "" || len(links) > 0 {
			all = append(all, page.Fact{Name: name, Value: page.StoredWord(value), Note: note, Links: links})
		}
	}
	others := func(filter, value string) (links []page.FactLink) {
		if value != "" && len(value) <= mostOfNext {
			links = append(links, page.FactLink{Text: "its records", Link: v.recordsBy(url.Values{filter: {value}})})
		}
		return links
	}
	if r.Kind != remote.KindDecision {
		add("Record of", r.Kind, "")
		add("Event", r.Event, "", others("event", r.Event)...)
	}
	who, with := refOf(r.Names.Subject.Type, r.Names.Subject.ID), refOf(r.Names.Resource.Type, r.Names.Resource.ID)
	add("Who", who, "", others("subject", who)...)
	add("Does", r.Names.Action.Name, "", others("action", r.Names.Action.Name)...)
	add("With", with, "", others("resource", with)...)
	add("Reason", r.Reason, "")
	add("To the user", r.ReasonUser, "")
	add("Asked by", r.Caller, "")
	add("Tenant", r.Tenant, "")
	batch, _, _ := strings.Cut(r.ID, ".")
	if link := v.recordLink(batch); link != "" && (len(r.Inherits) > 0 || e.record.OfBatch) {
		add("Item of", "", "", page.FactLink{Text: "a batch, which has what its items share", Link: link})
	}
	add("Gone", strings.Join(r.Gone, ", "), "with the record of the batch")
	for _, id := range e.approvals {
		links := others("approval", id)
		if e.mayOpen[id] {
			links = append(links, page.FactLink{Text: "the request", Link: v.linkOf(id)})
		}
		add("Approval request", id, "", links...)
	}
	if c := r.Capability; c == nil {
		id := stepOf(r).Capability
		add("Capability", id, "", others("capability", id)...)
	} else {
		note := page.Label("was shown, and counted")
		switch {
		case c.Grants:
			note = "was granted"
		case !c.Held:
			note = "was shown, and did not count"
		}
		add("Capability", cmp.Or(c.ID, "unknown"), note, others("capability", c.ID)...)
		add("Its fault", c.Reason, "")
	}
	add("Policies", r.Bundle, "")
	return all
}

// questionsIn are the questions of a record of a batch, and how many more there are.
func (v *visit) questionsIn(r *remote.Recorded) (all []page.RecordQuestion, more int) {
	questions, err := r.Questions()
	if err != nil || r.Items == nil {
		return nil, 0
	}
	for n := range questions[:min(len(questions), mostSteps)] {
		q := &questions[n]
		name := strings.Join([]string{refOf(q.Names.Subject.Type, q.Names.Subject.ID), q.Names.Action.Name, refOf(q.Names.Resource.Type, q.Names.Resource.ID)}, " ")
		all = append(all, page.RecordQuestion{Name: page.Brief(page.Line, name, briefMessage), Link: v.recordLink(q.ID), Answer: page.StatusOf(q.Answer())})
	}
	if more = len(questions) - len(all); r.Rest != nil {
		more += r.Rest.More
	}
	return all, more
}

// recordLink is the page of a record; it is empty if the id is none of ours.
func (v *visit) recordLink(id string) page.Href {
	if of := page.RecordIDOf(id); !of.None() {
		return page.Href(v.link(decisionsPath + "/" + of.String()))
	}
	return ""
}

// sentPart is the part of a request about a subject, an action or a resource.
type sentPart struct {
	Properties jsontext.Value `json:"properties"`
}

// sentRequest has the members of a request on record, beside its names.
type sentRequest struct {
	Subject  sentPart                  `json:"subject"`
	Action   sentPart                  `json:"action"`
	Resource sentPart                  `json:"resource"`
	Context  map[string]jsontext.Value `json:"context"`
}

// sentOf is the request of a record. It is empty if there is none. In a list it lacks the parts that an item inherits.
func sentOf(r *remote.Recorded) sentRequest {
	var line struct {
		Request sentRequest `json:"request"`
	}
	if len(r.Asked) > 0 {
		if json.Unmarshal(r.Asked, &line.Request) != nil {
			return sentRequest{}
		}
	} else if json.Unmarshal(r.Line, &line) != nil {
		return sentRequest{}
	}
	return line.Request
}

// whyOf is why something is asked, in the words of the request: the justification that approvers read, or that in the context,
// or the purpose; "" if it is none of these, or no text.
func whyOf(r *remote.Recorded, q sentRequest) string {
	for _, said := range []jsontext.Value{stepOf(r).Justification["justification"], q.Context["justification"], q.Context["purpose"]} {
		var text string
		if json.Unmarshal(said, &text) == nil && text != "" && text != "approved" { // which asks for an approval
			return text
		}
	}
	return ""
}

// sentIn are the parts of the request on record, and the places in it that are masked.
func sentIn(r *remote.Recorded, q sentRequest) (all []page.SentTable, masked []page.MaskedPlace) {
	for _, h := range r.Masked[:min(len(r.Masked), mostSteps)] {
		masked = append(masked, page.MaskedPlace{At: page.StoredWord(h.At), Type: page.Word(h.Type), Part: h.Part})
	}
	rest := maps.Clone(q.Context)
	delete(rest, "arguments")
	context, _ := json.Marshal(rest, json.Deterministic(true))
	hides := func(at string) func(string) bool {
		return func(name string) bool {
			place := jsontext.Pointer(at).AppendToken(name)
			for _, h := range r.Masked {
				if masked := jsontext.Pointer(h.At); place.Contains(masked) || masked.Contains(place) {
					return true
				}
			}
			return false
		}
	}
	for _, part := range []struct {
		caption page.Label
		of      jsontext.Value
		at      string
	}{
		{"Arguments", q.Context["arguments"], "/context/arguments"},
		{"Context", context, "/context"},
		{"About who asks", q.Subject.Properties, "/subject/properties"},
		{"About what is done", q.Action.Properties, "/action/properties"},
		{"About what it is done with", q.Resource.Properties, "/resource/properties"},
	} {
		if t := page.SentMembers(part.caption, part.of, hides(part.at)); len(t.Rows) > 0 {
			all = append(all, t)
		}
	}
	return all, masked
}

// why is the explanation. Without one it has the names of the policies.
func (v *visit) why(e *evidence) (w page.Explained) {
	r := &e.record.Record
	if r.Kind != remote.KindDecision && r.Kind != remote.KindPossible {
		return w
	}
	switch status := httpclient.StatusOf(e.noExplanation); {
	case r.Kind == remote.KindPossible:
		w.Not = "It was asked what is possible, and nothing was decided. These policies made the answer."
	case !v.explicable(r):
		w.Not = "The right to explain decisions of this tenant is missing. These policies decided; ask the operator for the permission explain to see why."
	case e.noExplanation == nil:
		return v.explainedBy(e)
	case status == http.StatusGone || status == http.StatusConflict:
		w.Not, w.NotDetail = "It cannot be explained any more. These policies decided.", page.Of(detailOf(e.noExplanation))
	default:
		w.Not = "It cannot be explained at the moment. These policies decided."
	}
	for _, of := range []struct {
		ids  []string
		part page.Label
	}{{r.Determining, partNames[remote.Determining]}, {r.Overruled, partNames[remote.Overruled]}} {
		for _, id := range of.ids {
			w.Policies = append(w.Policies, page.ExplainedPolicy{ID: page.Word(id), Part: of.part, Records: v.recordsBy(url.Values{"policy": {id}})})
		}
	}
	for _, failed := range r.Errors {
		w.Policies = append(w.Policies, page.ExplainedPolicy{ID: page.Word(failed.Policy), Part: partNames[remote.Erred], Position: page.Word(failed.Position)})
	}
	return w
}

// The words for the parts of policies, the results of clauses, and the sources of values.
var (
	partNames = map[remote.Part]page.Label{
		remote.Determining: "decided", remote.Overruled: "was overruled by the reason", remote.Erred: "had an error", remote.Near: "came nearest, and did not apply",
	}
	clauseNames = map[string]page.Label{
		"held": "held", "failed": "did not hold", "error": "had an error", "unknown": "reads a masked value", "not_reached": "not reached",
	}
	sourceNames = map[string]page.Label{
		"sent": "sent", "stored": "from the bundle", "pdp": "from the service", "passed_over": "sent, and passed over for the bundle's",
		"dropped": "sent, and dropped by the schema", "unusable": "sent, and unusable", "missing": "missing", "unknown": "masked",
	}
)

func (v *visit) explainedBy(e *evidence) page.Explained {
	x := &e.explained
	w := page.Explained{Known: true, Same: x.Same != nil && *x.Same, Answer: page.StatusOf(x.Answer), Reason: page.Word(string(x.Reason)), More: x.More}
	if x.DependsOn != nil {
		for _, at := range x.DependsOn.Paths {
			w.DependsOn = append(w.DependsOn, page.Word(at))
		}
	}
	for _, p := range x.Policies {
		one := page.ExplainedPolicy{
			ID: page.Word(p.ID), Effect: page.Word(p.Effect), Position: page.Word(p.Position), Part: partNames[p.Part], Text: page.Of(p.Text),
			Records: v.recordsBy(url.Values{"policy": {p.ID}}),
		}
		for _, c := range p.Clauses {
			says := clauseNames[string(c.Result)]
			result := page.Label("unknown")
			if says != "" {
				result = page.Label(c.Result)
			}
			one.Clauses = append(one.Clauses, page.ExplainedClause{Text: page.Of(c.Text), Result: result, Says: says})
		}
		for _, a := range p.Attributes {
			one.Reads = append(one.Reads, page.ExplainedRead{Path: page.Word(a.Path), Source: sourceNames[string(a.Source)]})
		}
		if one.Part == "" && x.DependsOn == nil {
			w.Others = append(w.Others, one)
		} else {
			w.Policies = append(w.Policies, one)
		}
	}
	return w
}

// owedIn are the obligations of a decision, with their receipts.
func owedIn(e *evidence) (all []page.OwedObligation) {
	for _, o := range e.record.Record.Obligations {
		one := page.OwedObligation{ID: page.Word(o.ID), Type: page.Word(o.Type), Done: "nothing was reported"}
		if o.Type == "approval_required" {
			one.Done = "people are asked"
		}
		for _, receipt := range e.record.Receipts {
			for _, said := range receipt.Obligations {
				if said.ID == o.ID {
					one.Done, one.Detail = "reported by the caller as failed", page.Of(said.Detail)
					if said.Status == "discharged" {
						one.Done = "reported by the caller as done"
					}
				}
			}
		}
		all = append(all, one)
	}
	for _, met := range e.record.Record.Discharged {
		all = append(all, page.OwedObligation{ID: page.Word(met.ID), Type: page.Word(met.Type), Discharged: page.Word(met.Approval)})
	}
	return all
}

// storyStep is one record of an approval request.
func (v *visit) storyStep(r *remote.Recorded, this string) page.RecordStep {
	said := stepOf(r)
	return page.RecordStep{
		Link: v.recordLink(r.ID), At: v.moment(r.Time), Event: page.Word(cmp.Or(r.Event, r.Kind)), Answer: page.StatusOf(r.Answer()), Current: r.ID == this,
		By: page.Line(said.By), Via: page.Word(said.Via), To: page.Line(said.To), Reason: page.Of(said.Reason),
	}
}

// proof is where the record stands, and the commands that check it elsewhere.
func (v *visit) proof(e *evidence) page.Proof {
	server := v.serverWord()
	p := page.Proof{
		Sequence: page.Word(strconv.FormatUint(e.record.Sequence, 10)),
		Leaf:     page.Word(e.record.LeafHash),
		Prove:    page.CommandOf([]string{"policy-service", "log", "prove", e.id, "--server", server}, ">proof.ndjson"),
		Key:      page.CommandOf([]string{"policy-service", "log", "key", "--server", server}, ">log.pub"),
		Test:     page.CommandOf([]string{"policy-service", "log", "verify", "proof.ndjson", "--key", "log.pub"}, ""),
	}
	if e.noCheckpoint == nil {
		p.Size, p.Root = page.Word(strconv.FormatUint(e.signed.Size, 10)), page.Word(e.signed.Root.String())
		p.At, p.Covered = page.MomentOf(e.signed.Time, v.options.Now().Round(time.Second)), e.record.Sequence < e.signed.Size
	}
	return p
}
