package console

import (
	"net/http"
	"net/url"
	"strings"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/console/page"
	"policy-service/pdp/httpclient"
)

const (
	approvalsPath = "/approvals"
	// onPage is how many approval requests a page of the inbox has.
	onPage = 50
	// briefName and briefMessage are how many characters the inbox shows of a name and of a message.
	briefName, briefMessage = 60, 140
)

// tab is one kind of approval requests.
type tab struct {
	name, title page.Label
	// voted is as in [inbox.Filter]. statuses may be chosen, the first unless another one is.
	voted    *bool
	statuses []page.Status
}

var tabs = []tab{
	{name: "mine", title: "Mine to decide", voted: new(bool)},
	{name: "said", title: "Said by me", voted: new(true), statuses: []page.Status{
		page.Pending, page.Approved, page.Denied, page.UsedUp, page.Expired, page.Revoked, page.Cancelled,
	}},
	{name: "done", title: "Done", statuses: []page.Status{
		page.Approved, page.Denied, page.UsedUp, page.Expired, page.Revoked, page.Cancelled,
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
	l := look{tab: tabOf(q.Get("tab")), status: page.Pending, cursor: q.Get("cursor")}
	if len(l.tab.statuses) > 0 {
		l.status = l.tab.statuses[0]
	}
	for _, s := range l.tab.statuses {
		if q.Get("status") == string(s.Name()) {
			l.status = s
		}
	}
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	l.filter = inbox.Filter{
		Status:   string(l.status.Name()),
		Voted:    l.tab.voted,
		Tenant:   text("tenant"),
		Template: text("template"),
		Subject:  text("subject"),
		Resource: text("resource"),
		Action:   text("action"),
	}
	return l
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
	got, err := v.api.List(v.r.Context(), l.filter, l.cursor, onPage)
	view := v.inboxView(l, got)
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
	v.show(status, view)
}

func (v *visit) inboxView(l look, got inbox.Page) page.Inbox {
	view := page.Inbox{Layout: v.layout(l.tab.title), Filter: v.filter(l)}
	if l.tab.name == tabs[0].name && !l.filtered() && l.cursor == "" {
		view.Layout.Waiting = page.Count{N: len(got.Items), More: got.Next != ""}
	}
	for _, t := range tabs {
		view.Tabs = append(view.Tabs, page.Tab{Link: v.at(l, t, ""), Text: t.title, Current: t.name == l.tab.name})
	}
	for _, r := range got.Items {
		view.Rows = append(view.Rows, v.entry(r))
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

func (v *visit) entry(r inbox.Request) page.Entry {
	who, _ := r.Request.Actors()
	brief := func(text string) page.Text { return page.Word(text).Brief(briefName) }
	return page.Entry{
		Link:     v.linkOf(r.ID),
		Redacted: r.Redacted(),
		Who:      brief(word(who)),
		Does:     brief(r.Request.Action.Name),
		With:     brief(named(r.Request.Resource)),
		Message:  page.Line(r.Message).Brief(briefMessage),
		Tenant:   brief(r.Tenant),
		Template: brief(r.Template),
		Status:   page.StatusOf(r.Status),
		Votes:    page.Votes{Given: r.Approvals, Needed: r.Quorum},
		Filed:    v.moment(r.FiledAt),
		Until:    v.moment(r.ExpiresAt),
	}
}
