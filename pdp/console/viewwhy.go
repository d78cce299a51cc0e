package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/console/page"
	"policy-service/pdp/httpclient"
)

func (s *sheet) terms() page.Terms {
	r := &s.f.approval
	t := page.Terms{Uses: r.Uses, Used: r.Used, Rounds: r.Rounds, Continued: r.Continued}
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
