package console

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/console/page"
)

// sheet makes the page of one approval request, and counts the parts that a person should heed.
type sheet struct {
	v    *visit
	f    *facts
	heed page.Heed
	like map[string]page.Text // known ids that something looks like, by JSON Pointer
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
	if t.Cut() {
		s.heed.Cut++
	}
	return t
}

func (v *visit) requestView(f *facts, tried attempt) page.Request {
	s := &sheet{v: v, f: f, like: map[string]page.Text{}}
	for _, a := range f.why.Alike {
		known := page.Line(a.Known)
		s.like[a.Pointer] = known
		s.heed.Alike = append(s.heed.Alike, page.Alike{Pointer: page.Line(a.Pointer), Known: known})
	}
	view := page.Request{
		Layout:   v.layout("Request"),
		Asks:     s.asks(),
		Sent:     s.parts(),
		Last:     s.lastOne(),
		Terms:    s.terms(),
		Why:      s.reasons(),
		Deciders: s.others(),
		Forms:    s.forms(tried),
	}
	if view.Says = page.Members("Says — written by whoever asks —", f.approval.Justification, nil); len(view.Says.Rows) > 0 {
		s.tally(view.Says)
	}
	for _, said := range f.approval.Said {
		view.Said = append(view.Said, s.vote(said))
	}
	view.Layout.About = page.IDOf(f.approval.ID)
	view.Layout.Waiting = page.Count{N: len(f.waiting.Items), More: f.waiting.Next != ""}
	view.Prev, view.Next = s.beside()
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
	if tried == (attempt{}) {
		state.Done = s.done()
	}
	return state
}

// done names the act of the person that led to this page. The address of the page says it, and anybody can write that: so it is said
// only if the approval request says it, too.
func (s *sheet) done() page.Label {
	what, r := s.v.r.URL.Query().Get("done"), &s.f.approval
	if what == revoke && r.Status == "revoked" {
		return "Revoked."
	}
	said := slices.ContainsFunc(r.Said, func(one inbox.Said) bool { return one.By == s.v.me.Principal && one.Decision == what })
	switch {
	case !said:
		return ""
	case what == approve && r.Pending():
		return "You approved. It waits for more approvals."
	case what == approve:
		return "You approved."
	case what == deny:
		return "You denied."
	case what == delegate:
		return "You delegated."
	}
	return ""
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
			s.tally(t)
			all = append(all, t)
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

func (s *sheet) tally(t page.Table) {
	for _, row := range t.Rows {
		s.counted(row.Name)
		s.counted(row.Value.Text)
		s.counted(row.Was.Text)
	}
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
	if n := len(r.Said); n > 0 {
		said := r.Said[n-1]
		last.By, last.Decision = page.Line(said.By).Brief(briefName), decisionOf(said.Decision)
		last.Reason = page.Line(said.Reason).Brief(briefMessage)
	}
	return last
}
