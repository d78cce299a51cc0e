package console

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/httpclient"
)

// sheet makes the page of one approval request, and counts the parts that a person should heed.
type sheet struct {
	v     *visit
	f     *facts
	whole bool // nothing is cut
	heed  page.Heed
	like  map[string]page.Text // known ids that something looks like, by JSON Pointer
}

// of is a text of the approval request.
func (s *sheet) of(text string) page.Text { return s.counted(page.Of(text)) }

// line is a text of the approval request that is a name.
func (s *sheet) line(text string) page.Text { return s.counted(page.Word(text)) }

// person is a name as policies have it, with quotation marks of its own.
func (s *sheet) person(text string) page.Text { return s.counted(page.Line(text)) }

func (s *sheet) counted(t page.Text) page.Text {
	if t.Odd() {
		s.heed.Odd++
	}
	return s.measured(t)
}

// measured is a text as long as the page shows it.
func (s *sheet) measured(t page.Text) page.Text {
	switch {
	case s.whole:
		return t.Whole()
	case t.Cut():
		s.heed.Cut++
	}
	return t.Begun()
}

func (v *visit) requestView(f *facts, tried attempt) page.Request {
	s := &sheet{v: v, f: f, whole: v.whole(f, tried), like: map[string]page.Text{}}
	for _, a := range f.why.Alike {
		known := page.Line(a.Known)
		s.like[a.Pointer] = known
		s.heed.Alike = append(s.heed.Alike, page.Alike{Pointer: page.Line(a.Pointer), Known: known})
	}
	waiting := f.waiting.Count()
	v.waiting = &waiting
	view := page.Request{
		Layout:   v.layout("Request"),
		Asks:     s.asks(),
		Sent:     s.parts(),
		Last:     s.lastOne(),
		Terms:    s.terms(),
		Why:      s.reasons(),
		Deciders: s.others(),
	}
	if view.Says = page.Members("Says — written by whoever asks —", f.approval.Justification, nil); len(view.Says.Rows) > 0 {
		view.Says = s.tally(view.Says)
	}
	for _, said := range f.approval.Said {
		view.Said = append(view.Said, s.vote(said))
	}
	view.Layout.About = page.IDOf(f.approval.ID)
	view.Prev, view.Next = s.beside()
	if s.heed.Cut > 0 {
		s.heed.Whole = s.v.linkOf(f.approval.ID) + "?" + wholeField
	}
	view.Forms = s.forms(tried) // once all that may be cut is counted
	view.State = s.state(view.Forms, tried)
	view.Heed = s.heed
	return view
}

func (s *sheet) state(forms page.Forms, tried attempt) page.State {
	r := &s.f.approval
	state := page.State{
		ID:      page.IDOf(r.ID),
		Status:  page.StatusOf(r.Status),
		Votes:   page.Votes{Given: r.Approvals, Needed: r.Quorum},
		Until:   s.v.moment(r.ExpiresAt),
		Filed:   s.v.moment(r.FiledAt),
		Mistake: tried.mistake,
		Detail:  page.Of(tried.detail),
	}
	state.Heading = state.Status.Text()
	switch {
	case forms.Approve || forms.Deny:
		state.Heading = "Waits for you"
	case state.Status.Pending():
		state.Heading = "Waits for others"
	}
	return state
}

// asks is the question: subject, action and resource.
func (s *sheet) asks() page.Asks {
	r := &s.f.approval
	by, others := r.Request.Actors()
	if r.Redacted() {
		return page.Asks{
			Redacted:   true,
			RedactedAt: s.v.moment(r.RedactedAt),
			Through:    s.line(r.Requester),
			Tenant:     s.line(r.Tenant),
			Template:   s.line(r.Template),
		}
	}
	a := page.Asks{
		Message:  s.counted(page.Line(r.Message)), // one of several lines could pass for a row of ours
		Grant:    r.Request.Action.Name == grantAction || r.Request.Action.Name == delegateAction,
		Who:      s.name(word(by), by.Pointer),
		Through:  s.line(r.Requester),
		Does:     s.name(r.Request.Action.Name, "/action/name"),
		With:     s.name(named(r.Request.Resource), "/resource/id"),
		Server:   s.counted(page.Line(r.Request.ServerSays())),
		Tenant:   s.line(r.Tenant),
		Template: s.line(r.Template),
	}
	if requester, named := r.Request.Requester(); named {
		a.RequestedBy = []page.Name{s.name(word(requester), requester.Pointer)}
	}
	for _, one := range others {
		a.For = append(a.For, s.name(word(one), one.Pointer))
	}
	return a
}

// The actions of questions about a capability.
const grantAction, delegateAction = "capability.grant", "capability.delegate"

func (s *sheet) name(text, pointer string) page.Name {
	return page.Name{Text: s.line(text), Like: s.like[pointer]}
}

// parts are the arguments and properties of the question, compared with the last one like it.
func (s *sheet) parts() (all []page.Table) {
	parts := []struct {
		caption page.Label
		of      func(inbox.Asked) jsontext.Value
	}{
		{"Arguments", func(a inbox.Asked) jsontext.Value { return a.Context["arguments"] }},
		{"Context", func(a inbox.Asked) jsontext.Value { return without(a.Context) }},
		{"About who asks", func(a inbox.Asked) jsontext.Value { return a.Subject.Properties }},
		{"About what is done", func(a inbox.Asked) jsontext.Value { return a.Action.Properties }},
		{"About what it is done with", func(a inbox.Asked) jsontext.Value { return a.Resource.Properties }},
	}
	for _, part := range parts {
		var last *jsontext.Value
		if s.f.last != nil {
			then := part.of(s.f.last.Request)
			last = &then
		}
		if t := page.Members(part.caption, part.of(s.f.approval.Request), last); len(t.Rows) > 0 {
			t.Agreed, t.Then = s.agreed()
			all = append(all, s.tally(t))
		}
	}
	return all
}

// agreed reports if people agreed to the last request like this one, and the status of that request.
func (s *sheet) agreed() (bool, page.Status) {
	r := s.f.last
	if r == nil {
		return false, page.Unknown
	}
	then := page.StatusOf(r.Status)
	lasting := slices.Contains([]page.Status{page.Approved, page.UsedUp, page.Expired}, then)
	return lasting && r.Quorum > 0 && r.Approvals >= r.Quorum, then
}

func (s *sheet) tally(t page.Table) page.Table {
	if !s.whole {
		s.heed.Cut += t.Fold()
	}
	t.Each(func(text page.Text, again bool) page.Text {
		switch {
		case !again:
			return s.counted(text)
		case s.whole:
			return text.Whole()
		}
		return text.Begun()
	})
	return t
}

// lastOne is the last request like this one.
func (s *sheet) lastOne() page.Last {
	if s.f.noLast != nil {
		return page.Last{Failed: !withheld(s.f.noLast)}
	}
	if s.f.last == nil {
		return page.Last{}
	}
	r := s.f.last
	last := page.Last{Link: s.v.linkOf(r.ID), At: s.v.moment(r.FiledAt), Status: page.StatusOf(r.Status)}
	last.By, last.Decision, last.Reason = lastSaid(r)
	return last
}

// lastSaid is the last vote on a request: its person, decision and reason; nothing if there was none.
func lastSaid(r *inbox.Request) (by page.Text, decision page.Label, reason page.Text) {
	if n := len(r.Said); n > 0 {
		said := r.Said[n-1]
		by, decision = page.Brief(page.Line, said.By, briefName), decisionOf(said.Decision)
		reason = page.Brief(page.Line, said.Reason, briefMessage)
	}
	return by, decision, reason
}

// forms are the buttons of the person, one for each act that the API allows.
func (s *sheet) forms(tried attempt) page.Forms {
	r := &s.f.approval
	below := approvalsPath + "/" + r.ID
	form := func(path, shown string) page.Form {
		token := s.v.token(http.MethodPost, path, r.ID, r.Version, shown)
		return page.Form{Action: page.Href(s.v.link(path)), Token: page.Token(token), Shown: page.Token(shown)}
	}
	shown := ""
	if s.heed.Cut == 0 {
		shown = s.f.digest()
	}
	f := page.Forms{Decision: form(below+"/decision", shown), Revocation: form(below+"/revoke", ""), Version: r.Version, Unseen: tried.unseen}
	if s.f.noWhy != nil {
		f.Not = []page.Not{{What: "decide", Why: page.Of("the service does not say at the moment what you may do; load the page again")}}
		return f
	}
	may := func(what string) bool { return slices.Contains(s.f.why.You.May, what) }
	f.Approve, f.Deny, f.Delegate, f.Revoke = may(approve), may(deny), may(delegate), may(revoke)
	f.Not = s.not()
	for _, person := range s.f.deciders.Items {
		if page.Line(person).Plain() {
			f.Offer = append(f.Offer, page.Typed(person))
		}
	}
	f.Missing = tried.missing
	if tried.decision == delegate {
		f.Delegating, f.Person, f.ToReason = true, page.Typed(tried.to), page.Typed(tried.reason)
	} else {
		f.Reason = page.Typed(tried.reason)
	}
	return f
}

// not are the buttons that are missing, and why: of those that make sense as the approval request is now.
func (s *sheet) not() (all []page.Not) {
	sensible := map[string][]string{"pending": {approve, deny, delegate}, "approved": {revoke}}[s.f.approval.Status]
	why := map[string][]string{}
	var order []string
	for _, one := range s.f.why.You.Not {
		if !slices.Contains(sensible, one.Decision) || one.Decision == delegate && !s.f.approval.Delegable {
			continue
		}
		if why[one.Detail] == nil {
			order = append(order, one.Detail)
		}
		why[one.Detail] = append(why[one.Detail], one.Decision)
	}
	for _, detail := range order {
		all = append(all, page.Not{What: acts[strings.Join(why[detail], " ")], Why: page.Of(detail)})
	}
	return all
}

// acts are acts that cannot be done, in words.
var acts = map[string]page.Label{
	"approve": "approve", "deny": "deny", "delegate": "delegate", "revoke": "revoke",
	"approve deny": "approve or deny", "approve delegate": "approve or delegate", "deny delegate": "deny or delegate",
	"approve deny delegate": "approve, deny or delegate",
}

func (s *sheet) terms() page.Terms {
	r := &s.f.approval
	t := page.Terms{Uses: r.Uses, Used: r.Used, Rounds: r.Rounds, Continued: r.Continued, UnderWay: s.v.underWay(r.InFlight, r.Status != "pending" && r.Status != "approved")}
	t.Within, _ = time.ParseDuration(r.RoundsWithin)
	if r.Pending() {
		t.ValidFor, _ = time.ParseDuration(s.f.why.ValidFor) // a text that is no duration is not shown
	}
	for _, pointer := range r.Unbound {
		t.Unbound = append(t.Unbound, s.line(pointer))
	}
	return t
}

func (s *sheet) reasons() page.Why {
	w := page.Why{Known: s.f.noWhy == nil, Decision: page.IDOf(s.f.approval.Decision)}
	if !w.Known {
		return w
	}
	w.Obligation = page.Place{Name: s.line(s.f.why.Obligation.Name), At: s.line(s.f.why.Obligation.At)}
	for _, p := range s.f.why.Policies {
		w.Policies = append(w.Policies, page.Place{Name: s.line(p.ID), At: s.line(p.At)})
	}
	return w
}

// vias are the ways by which votes come, in words.
var vias = map[string]page.Label{"api": "API", "console": "console", "form": "form"}

// decisions are the rulings of people, in words.
var decisions = map[string]page.Label{approve: "approved", deny: "denied", delegate: "delegated", revoke: "revoked"}

func decisionOf(name string) page.Label {
	return cmp.Or(decisions[name], "said something that this page does not know")
}

func (s *sheet) vote(said inbox.Said) page.Vote {
	return page.Vote{
		By:       s.person(said.By),
		Decision: decisionOf(said.Decision),
		To:       s.person(said.To),
		Reason:   s.of(said.Reason),
		Via:      cmp.Or(vias[string(said.Via)], "a way that this page does not know"),
		Gateway:  s.line(said.Gateway),
		At:       s.v.moment(said.At),
		Until:    s.v.moment(said.ValidUntil),
	}
}

// others are the other people who may decide.
func (s *sheet) others() page.Deciders {
	d := page.Deciders{Known: s.f.noDeciders == nil && s.f.approval.Pending(), More: s.f.deciders.More}
	for _, person := range s.f.deciders.Items {
		d.People = append(d.People, s.person(person))
	}
	return d
}

// beside are the approval requests before and after this one in the inbox. If it is not there, the first one is after it.
func (s *sheet) beside() (prev, next page.Href) {
	items := s.f.waiting.Items
	n := slices.IndexFunc(items, func(r inbox.Request) bool { return r.ID == s.f.approval.ID })
	if n > 0 {
		prev = s.v.linkOf(items[n-1].ID)
	}
	if n+1 < len(items) {
		next = s.v.linkOf(items[n+1].ID)
	}
	return prev, next
}

// withheld reports if the API does not tell the person, which is no failure.
func withheld(err error) bool {
	status := httpclient.StatusOf(err)
	return status == http.StatusNotFound || status == http.StatusForbidden
}

// named is an entity in one word.
func named(e inbox.Entity) string { return e.Type + "/" + e.ID }

// word is an actor by name, and the JSON itself if that says more.
func word(a inbox.Actor) string {
	if a.JSON != nil {
		return string(a.JSON)
	}
	return a.Name
}

// without is the context of a question but for its arguments and for the actors, where those are shown whole elsewhere.
func without(context map[string]jsontext.Value) jsontext.Value {
	rest := maps.Clone(context)
	delete(rest, "arguments")
	if agent, ok := context["agent"]; ok && inbox.ActorOf(agent, "").JSON == nil {
		delete(rest, "agent")
	}
	if requester, ok := context["requester"]; ok && inbox.ActorOf(requester, "").JSON == nil {
		delete(rest, "requester")
	}
	chain, shown := inbox.Behind(context)
	if shown && !slices.ContainsFunc(chain, func(one inbox.Actor) bool { return one.JSON != nil }) {
		delete(rest, "on_behalf_of")
	}
	if len(rest) == 0 {
		return nil
	}
	object, err := json.Marshal(rest, json.Deterministic(true))
	if err != nil {
		return jsontext.Value(err.Error()) // which is shown as text
	}
	return object
}

// linkOf is the address of the page of an approval request, and none if that has no id.
func (v *visit) linkOf(id string) page.Href {
	known := page.IDOf(id)
	if known.None() {
		return ""
	}
	return page.Href(v.link(approvalsPath + "/" + known.String()))
}

// moment is a time on this page.
func (v *visit) moment(at time.Time) page.Moment { return page.MomentOf(at, v.options.Now()) }
