package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/httpclient"
)

const (
	approvalsPath = "/approvals"
	// onPage is how many approval requests a page of the inbox has.
	onPage = 50
	// briefName and briefMessage are how many characters the inbox shows of a name and of a message.
	briefName, briefMessage = 60, 140
)

// tab is one kind of approval requests. With statuses, it has the newest first.
type tab struct {
	name, title page.Label
	// voted is as in [inbox.Filter]. statuses may be chosen, the first unless another one is.
	voted    *bool
	statuses []page.Status
}

var tabs = []tab{
	{name: "mine", title: "Mine to decide", voted: mine.Voted},
	{name: "said", title: "Said by me", voted: new(true), statuses: []page.Status{
		page.Any, page.Pending, page.Approved, page.Denied, page.UsedUp, page.Expired, page.Revoked, page.Cancelled,
	}},
	{name: "done", title: "Done", statuses: []page.Status{
		page.Ended, page.Approved, page.Denied, page.UsedUp, page.Expired, page.Revoked, page.Cancelled,
	}},
}

func tabOf(name string) tab {
	for _, t := range tabs {
		if string(t.name) == name {
			return t
		}
	}
	return tabs[0]
}

// look is which approval requests a person looks at.
type look struct {
	tab    tab
	status page.Status
	filter inbox.Filter
	cursor string
}

func lookOf(q url.Values) look {
	l := look{tab: tabOf(q.Get("tab")), cursor: q.Get("cursor")}
	l.status = l.tab.status()
	for _, s := range l.tab.statuses {
		if q.Get("status") == string(s.Name()) {
			l.status = s
		}
	}
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	l.filter = inbox.Filter{
		Tenant:   text("tenant"),
		Template: text("template"),
		Subject:  text("subject"),
		Resource: text("resource"),
		Action:   text("action"),
	}
	l.filter = l.with(l.tab, l.status)
	return l
}

// status is that of a tab, unless another one is chosen.
func (t tab) status() page.Status {
	if len(t.statuses) == 0 {
		return page.Pending
	}
	return t.statuses[0]
}

// of is the filter of another tab, with the same words.
func (l look) of(t tab) inbox.Filter { return l.with(t, t.status()) }

func (l look) with(t tab, status page.Status) inbox.Filter {
	f := l.filter
	f.Status, f.Voted, f.Newest = string(status.Name()), t.voted, len(t.statuses) > 0
	return f
}

// filtered reports if the person has given a filter, besides the tab and the status.
func (l look) filtered() bool {
	f := l.filter
	return f.Tenant+f.Template+f.Subject+f.Resource+f.Action != ""
}

// at is the address of the same look at a tab, from a cursor on.
func (v *visit) at(l look, t tab, cursor string) page.Href {
	q := url.Values{"tab": {string(t.name)}}
	for name, value := range map[string]string{
		"tenant":   l.filter.Tenant,
		"template": l.filter.Template,
		"subject":  l.filter.Subject,
		"resource": l.filter.Resource,
		"action":   l.filter.Action,
		"cursor":   cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if t.name == l.tab.name && len(t.statuses) > 0 && l.status != t.statuses[0] {
		q.Set("status", string(l.status.Name()))
	}
	return page.Href(v.link(approvalsPath) + "?" + q.Encode())
}

// inbox is the page of the approval requests.
func (v *visit) inbox() {
	l := lookOf(v.r.URL.Query())
	lists, err := v.lists(l)
	view := v.inboxView(l, lists)
	status := http.StatusOK
	if err != nil {
		switch status = httpclient.StatusOf(err); status {
		case http.StatusBadRequest:
		case http.StatusForbidden: // the page to which the login leads says more than that there is none
			if len(v.me.Where(capabilityAdmin)) > 0 {
				v.redirect(capabilitiesPath)
				return
			}
			if len(v.me.Where(logRead)) > 0 {
				v.redirect(decisionsPath)
				return
			}
			m := v.message(http.StatusNotFound)
			m.Says = append(m.Says, page.Of("You are logged in, but may not approve: "+detailOf(err)))
			v.show(http.StatusNotFound, m)
			return
		default:
			v.fail(err)
			return
		}
		view.Mistake = page.Of(detailOf(err))
	}
	v.show(status, v.bounded(view))
}

// mostOfPage is how many bytes a page of the inbox has.
const mostOfPage = 200 << 10

// bounded leaves rows to the next page if there is no room for them: marks make a text much longer.
func (v *visit) bounded(view page.Inbox) page.Inbox {
	for len(view.Rows) > 1 {
		text, err := page.Render(view)
		if err != nil || len(text) <= mostOfPage {
			break
		}
		view.Rows = view.Rows[:min(len(view.Rows)-1, max(1, len(view.Rows)*mostOfPage/len(text)))]
		view.Next = view.Rows[len(view.Rows)-1].Rest
	}
	return view
}

// lists are the lists of an inbox: that of the page, and how many are on the first page of each tab, by their filters.
type lists struct {
	page  inbox.Page
	first map[inbox.Filter]*inbox.Count
}

// lists asks for all of them at once. A list that fails has no number; without the list of the page there is no page.
func (v *visit) lists(l look) (all lists, err error) {
	all.first = map[inbox.Filter]*inbox.Count{mine: {}}
	for _, t := range tabs {
		all.first[l.of(t)] = &inbox.Count{}
	}
	here := all.first[l.filter]
	if l.cursor != "" {
		here = nil
	}
	var g errgroup.Group
	g.Go(func() error { all.page, err = v.readOn(l); return nil })
	for filter, first := range all.first {
		if first != here {
			g.Go(func() error {
				*first, _, _ = v.api.Count(v.r.Context(), filter, onPage, "", 0)
				return nil
			})
		}
	}
	_ = g.Wait()
	if here != nil {
		*here = all.page.Count()
	}
	v.waiting = all.first[mine]
	return all, err
}

// readOnFor is how long short pages of the API are read on, and readOnOver how many. After that the page says that the list
// goes on.
const (
	readOnFor  = 200 * time.Millisecond
	readOnOver = 20
)

// readOn reads a page. The work of one answer is bounded, so that it may have few approval requests of many.
func (v *visit) readOn(l look) (all inbox.Page, err error) {
	begun := time.Now()
	for n, next := 1, l.cursor; ; n++ {
		got, err := v.api.List(v.r.Context(), l.filter, next, onPage-len(all.Items))
		if err != nil && n > 1 {
			return all, nil // it goes on there
		} else if err != nil {
			return all, err
		}
		if n == 1 {
			all.Tag = got.Tag
		}
		all.Items, all.Next = append(all.Items, got.Items...), got.Next
		if next = all.Next; next == "" || len(all.Items) >= onPage || n == readOnOver || time.Since(begun) >= readOnFor {
			return all, nil
		}
	}
}

func (v *visit) inboxView(l look, all lists) page.Inbox {
	got := all.page
	view := page.Inbox{Layout: v.layout("Inbox"), Filter: v.filter(l), Newest: l.filter.Newest}
	for _, t := range tabs {
		current := t.name == l.tab.name
		if current {
			view.Title = t.title
		}
		tab := page.Tab{Link: v.at(l, t, ""), Text: t.title, Current: current, Count: countOf(*all.first[l.of(t)])}
		tab.Live = l.of(t) == mine
		view.Tabs = append(view.Tabs, tab)
	}
	for n, apart := range inbox.TellApart(got.Items) {
		entry := v.entry(got.Items[n], apart)
		if apart.As >= 0 {
			entry.Above = n - apart.As
		}
		entry.Rest = v.at(l, l.tab, got.Items[n].ID)
		view.Rows = append(view.Rows, entry)
	}
	if got.Next != "" {
		view.Next = v.at(l, l.tab, got.Next)
	}
	if l.cursor != "" {
		view.First = v.at(l, l.tab, "")
	}
	return view
}

func (v *visit) filter(l look) page.Filter {
	f := page.Filter{
		Tab:      l.tab.name,
		Tenant:   page.Typed(l.filter.Tenant),
		Template: page.Typed(l.filter.Template),
		Subject:  page.Typed(l.filter.Subject),
		Resource: page.Typed(l.filter.Resource),
		Action:   page.Typed(l.filter.Action),
	}
	for _, s := range l.tab.statuses {
		f.Statuses = append(f.Statuses, page.Choice{Value: s.Name(), Text: s.Text(), Chosen: s == l.status})
	}
	if l.filtered() {
		f.Clear = v.at(look{tab: l.tab, status: l.status}, l.tab, "")
	}
	return f
}

// How many of a row's names and members are shown, and how many characters of each.
const (
	fewNames, fewMembers = 2, 3
	briefMember          = 40
)

func (v *visit) entry(r inbox.Request, apart inbox.Apart) page.Entry {
	who, others := r.Request.Actors()
	brief := func(text string) page.Text { return page.Brief(page.Word, text, briefName) }
	purpose, where := r.Purpose()
	e := page.Entry{
		Link:     v.linkOf(r.ID),
		Redacted: r.Redacted(),
		Who:      brief(word(who)),
		Does:     brief(r.Request.Action.Name),
		With:     brief(named(r.Request.Resource)),
		Message:  page.Brief(page.Line, r.Message, briefMessage),
		Says:     page.Brief(page.Quoted, purpose, briefMessage),
		Tenant:   brief(r.Tenant),
		Template: brief(r.Template),
		Status:   page.StatusOf(r.Status),
		Votes:    page.Votes{Given: r.Approvals, Needed: r.Quorum},
		Filed:    v.moment(r.FiledAt),
		Until:    v.moment(r.ExpiresAt),
	}
	if !r.Pending() {
		e.By, e.Decision, e.Reason = lastSaid(&r)
	}
	for _, one := range others[:min(len(others), fewNames)] {
		e.For = append(e.For, brief(word(one)))
	}
	e.MoreFor = max(0, len(others)-fewNames)
	members := slices.DeleteFunc(slices.Clone(apart.Members), func(m inbox.Member) bool {
		return m.Acts() || m.Of == "context" && m.Name == where // it stands there already
	})
	if len(members) == 0 && apart.As < 0 { // no row is there to differ from, or it differs by nothing else
		members = r.Request.Arguments()
	}
	e.Differs = briefly(members)
	return e
}

// briefly is the first few members in a row of a list.
func briefly(members []inbox.Member) (d page.Differences) {
	for n, m := range members {
		if n >= fewMembers && len(members) > fewMembers+1 { // "and 1 more" is no shorter than the one
			d.More++
			continue
		}
		d.Some = append(d.Some, page.Difference{
			Name:  page.Brief(page.Word, m.String(), briefMember),
			Value: page.Differing(m.Value, m.Text(), m.Alike, briefMember),
			None:  len(m.Value) == 0,
		})
	}
	return d
}
