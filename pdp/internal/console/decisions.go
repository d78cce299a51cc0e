package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server/auth"
)

const (
	decisionsPath = "/decisions"
	explainRight  = string(auth.Explain)
	// fewPolicies is how many determining policies a row of a list shows.
	fewPolicies = 3
)

// fieldsInView is how many fields of recordFilter are always in view.
const fieldsInView = 4

// receiptsOf is the filter for the receipts of a decision.
const receiptsOf = "of"

// recordFilter are the filters of the API that the form has as texts, in the order of the form. A command has flags of the
// same names, except for receiptsOf.
var recordFilter = []struct {
	name        string
	label, hint page.Label
}{
	{"text", "Text", "a word in the record"},
	{"subject", "Who", "type/id"},
	{"resource", "With", "type/id"},
	{"since", "Since", "7d, 2026-11-20"},
	{"action", "Does", ""},
	{"policy", "Policy", ""},
	{"from", "From", "2026-11-20T15:04:05Z"},
	{"to", "To", "2026-11-21"},
	{"tenant", "Tenant", ""},
	{"approval", "Approval request", "id"},
	{"capability", "Capability", "id"},
	{"event", "Event", "tool_drift"},
	{receiptsOf, "Receipts of", "id of a decision"},
}

// recordAnswers and recordKinds are the choices. The first kind stands for decisions, unless the filter needs others.
var (
	recordAnswers = []page.Status{page.Unknown, page.Allow, page.Waiting, page.Deny, page.Possible, page.Impossible}
	recordKinds   = []page.Choice{
		{Value: "", Text: "Decisions"}, {Value: everyKind, Text: "All records"},
		{Value: remote.KindPossible, Text: "Questions what is possible"}, {Value: remote.KindSearch, Text: "Searches"},
		{Value: remote.KindApproval, Text: "Approvals"}, {Value: remote.KindCapability, Text: "Capabilities"},
		{Value: remote.KindReceipt, Text: "Receipts"}, {Value: remote.KindAdmin, Text: "Administration"},
	}
)

const everyKind = "all"

// recordLook is which records a person looks at.
type recordLook struct {
	given  url.Values // the filters that are set, as the person wrote them
	kind   string     // that the API is asked for; "" is all
	newer  bool       // the page goes on from its cursor to newer records
	cursor string
}

func recordLookOf(q url.Values) (l recordLook) {
	l = recordLook{given: url.Values{}, cursor: q.Get("cursor"), newer: q.Get("order") == "oldest"}
	take := func(name string) {
		if text := strings.TrimSpace(q.Get(name)); text != "" {
			l.given.Set(name, text)
		}
	}
	for _, f := range recordFilter {
		take(f.name)
	}
	take("decision")
	take("kind")
	switch l.kind = l.given.Get("kind"); {
	case l.kind == everyKind:
		l.kind = ""
	case l.kind == "" && !slices.ContainsFunc([]string{"event", "approval", "capability", receiptsOf, "decision", "text"}, l.given.Has):
		l.kind = remote.KindDecision
	}
	return l
}

// query are the filters, and the place of the page.
func (l recordLook) query() url.Values {
	q := maps.Clone(l.given)
	if l.cursor != "" {
		q.Set("cursor", l.cursor)
	}
	if l.newer {
		q.Set("order", "oldest")
	}
	return q
}

// asked are the parameters for the API.
func (l recordLook) asked() url.Values {
	q := l.query()
	q.Set("limit", strconv.Itoa(onPage))
	if q.Del("kind"); l.kind != "" {
		q.Set("kind", l.kind)
	}
	return q
}

// recordsAt is the address of the same look from a cursor on.
func (v *visit) recordsAt(l recordLook, cursor string, newer bool) page.Href {
	l.cursor, l.newer = cursor, newer
	return v.recordsBy(l.query())
}

// recordsBy is the address of the records that a filter picks.
func (v *visit) recordsBy(q url.Values) page.Href {
	at := v.link(decisionsPath)
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	return page.Href(at)
}

// decisions is the page of the records of the decision log, the newest first.
func (v *visit) decisions() {
	if len(v.me.Where(logRead)) == 0 {
		v.problem(http.StatusNotFound)
		return
	}
	l := recordLookOf(v.r.URL.Query())
	view := page.Decisions{Layout: v.layout("Records"), Filter: v.recordForm(l), Export: v.exportOf(l)}
	view.All = l.kind != remote.KindDecision
	view.Recent = l.given.Has("text") && !l.given.Has("since") && !l.given.Has("from")
	got, err := v.records.Page(v.r.Context(), l.asked())
	status := http.StatusOK
	if err != nil {
		// If there was no time to find a page, the detail of the 503 says how to pick fewer records.
		if status = httpclient.StatusOf(err); status != http.StatusBadRequest && status != http.StatusServiceUnavailable {
			v.fail(err)
			return
		}
		view.Mistake = page.Of(detailOf(err))
	}
	if l.newer {
		slices.Reverse(got.Records)
	}
	for n := range got.Records {
		view.Rows = append(view.Rows, v.recordRow(&got.Records[n]))
	}
	// The cursors are places between records. That of the API goes on in the direction of this page.
	older, newer := got.More, l.cursor != ""
	if l.newer {
		older, newer = len(got.Records) > 0, got.More
	}
	if len(got.Records) > 0 {
		newest, oldest := got.Records[0].Sequence, got.Records[len(got.Records)-1].Sequence
		if older {
			view.Older = v.recordsAt(l, strconv.FormatUint(oldest, 10), false)
		}
		if newer {
			view.Newer = v.recordsAt(l, strconv.FormatUint(newest+1, 10), true)
		}
	}
	if older && !l.newer {
		view.Older = v.recordsAt(l, got.Next, false) // it also has the moment that ages count from
	}
	if l.cursor != "" {
		view.Newest = v.recordsAt(l, "", false)
	}
	v.show(status, view)
}

func (v *visit) recordForm(l recordLook) page.RecordFilter {
	form := page.RecordFilter{}
	for n, f := range recordFilter {
		one := page.RecordField{Name: page.Label(f.name), Label: f.label, Hint: f.hint, Value: page.Typed(l.given.Get(f.name))}
		if n < fieldsInView {
			form.Fields = append(form.Fields, one)
		} else {
			form.More = append(form.More, one)
		}
	}
	for _, a := range recordAnswers {
		text := a.Text()
		if a == page.Unknown {
			text = "Any"
		}
		form.Answers = append(form.Answers, page.Choice{Value: a.Name(), Text: text, Chosen: string(a.Name()) == l.given.Get("decision")})
	}
	chosen := l.given.Get("kind")
	if form.Kinds = slices.Clone(recordKinds); l.kind == "" {
		chosen = everyKind
	}
	for n := range form.Kinds {
		form.Kinds[n].Chosen = string(form.Kinds[n].Value) == chosen
	}
	if len(l.given) > 0 {
		form.Clear = v.recordsBy(nil)
	}
	return form
}

// recordRow is a record in a list.
func (v *visit) recordRow(r *remote.Recorded) page.RecordRow {
	row := page.RecordRow{
		Link:   v.recordLink(r.ID),
		At:     v.moment(r.Time),
		Answer: page.StatusOf(r.Answer()),
		Who:    word60(refOf(r.Names.Subject.Type, r.Names.Subject.ID)),
		Does:   word60(r.Names.Action.Name),
		With:   word60(refOf(r.Names.Resource.Type, r.Names.Resource.ID)),
		Caller: word60(r.Caller),
		Tenant: word60(r.Tenant),
		Reason: word60(r.Reason),
	}
	sent := sentOf(r)
	row.Sent = briefly(inbox.Asked{Context: sent.Context}.Arguments())
	row.Says = page.Brief(page.Quoted, whyOf(r, sent), briefMessage)
	policies := slices.Concat(r.Determining, r.Overruled)
	for _, p := range policies[:min(len(policies), fewPolicies)] {
		row.Policies = append(row.Policies, word60(p))
	}
	row.MorePolicies = len(policies) - len(row.Policies)
	if r.Kind != remote.KindDecision {
		row.Kind, row.Event = word60(r.Kind), word60(r.Event)
		step := stepOf(r)
		row.By, row.Said = page.Brief(page.Line, step.By, briefName), page.Brief(page.Line, step.Reason, briefMessage)
		if r.Names.Resource.ID == "" {
			row.With = word60(cmp.Or(step.Approval, step.Capability))
		}
		row.Questions = len(r.Items)
	}
	return row
}

func word60(text string) page.Text { return page.Brief(page.Word, text, briefName) }

// refOf is an entity as filters name it.
func refOf(typ, id string) string {
	if typ == "" && id == "" {
		return ""
	}
	return typ + "/" + id
}

// exportOf is the command that writes out the same records. There is none if a filter has no flag, or if a value is
// drawn in another way than it is written.
func (v *visit) exportOf(l recordLook) page.Command {
	if l.given.Has(receiptsOf) {
		return page.Command{}
	}
	words := []string{"policy-service", "log", "export", "--server", v.serverWord()}
	for _, f := range recordFilter {
		if value := l.given.Get(f.name); value != "" {
			words = append(words, "--"+f.name+"="+value)
		}
	}
	if a := l.given.Get("decision"); a != "" {
		words = append(words, "--decision="+a)
	}
	return page.CommandOf(words, ">records.ndjson")
}

// serverWord is the address of the API in a command.
func (v *visit) serverWord() string {
	if v.options.Server == "" {
		return "URL"
	}
	return v.options.Server
}
