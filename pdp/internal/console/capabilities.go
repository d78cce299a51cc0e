package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server/auth"
)

const (
	capabilitiesPath = "/capabilities"
	capabilityAdmin  = string(auth.CapabilityAdmin)
	apiCapabilities  = "/v1/capabilities"
	// mostCapabilities bounds an answer of the API, in bytes.
	mostCapabilities = 16 << 20
	// fewTools is how many tools of a capability a list shows.
	fewTools = 4
)

// held is a capability, as the API shows it.
type held struct {
	ID        string            `json:"id"`
	Tenant    string            `json:"tenant_id"`
	State     string            `json:"state"`
	Holder    heldBy            `json:"holder"`
	JKT       string            `json:"jkt"`
	Audience  string            `json:"audience"`
	Tools     []string          `json:"tools"`
	Arguments map[string]string `json:"arguments"` // the types of their constraints; nil if all may be any
	Expires   time.Time         `json:"expires"`
	MaxUses   int               `json:"max_uses"`
	Used      int               `json:"used"`
	InFlight  []inbox.InFlight  `json:"in_flight"`
}

type heldBy struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type heldPage struct {
	Items []held `json:"items"`
	Next  string `json:"next"`
}

// heldStates are the states that may be chosen, the first unless another one is; Unknown is all of them.
var heldStates = []page.Status{
	page.Active, page.Suspended, page.Revoked, page.Returned, page.Expired, page.UsedUp, page.Asked, page.Unknown,
}

// capabilities is the page of the capabilities that the person may take back. To people of several tenants it shows one
// at a time, the first unless they choose another.
func (v *visit) capabilities() {
	tenants := v.me.Where(capabilityAdmin)
	if len(tenants) == 0 {
		v.problem(http.StatusNotFound)
		return
	}
	given, asked := v.r.URL.Query(), url.Values{}
	for _, name := range []string{"tenant", "holder", "audience", "jkt"} {
		if text := strings.TrimSpace(given.Get(name)); text != "" {
			asked.Set(name, text)
		}
	}
	filtered, state := len(asked) > 0, heldStates[0]
	if every := slices.Contains(tenants, "*"); !every && asked.Get("tenant") == "" {
		asked.Set("tenant", tenants[0])
	}
	for _, s := range heldStates {
		if given.Get("state") == stateName(s) {
			state = s
		}
	}
	if state != page.Unknown {
		asked.Set("state", string(state.Name()))
	}
	at := func(cursor string) page.Href {
		q := maps.Clone(asked)
		q.Set("state", stateName(state))
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		return page.Href(v.link(capabilitiesPath) + "?" + q.Encode())
	}
	offer := []page.Typed{}
	for _, tenant := range tenants {
		if tenant != "*" {
			offer = append(offer, page.Typed(tenant))
		}
	}
	view := page.Capabilities{Layout: v.layout("Capabilities"), Filter: page.CapabilityFilter{
		Tenant:   page.Typed(asked.Get("tenant")),
		Holder:   page.Typed(asked.Get("holder")),
		Audience: page.Typed(asked.Get("audience")),
		Key:      page.Typed(asked.Get("jkt")),
		Offer:    offer,
	}}
	for _, s := range heldStates {
		text := s.Text()
		if s == page.Unknown {
			text = "All"
		}
		view.Filter.States = append(view.Filter.States, page.Choice{Value: page.Label(stateName(s)), Text: text, Chosen: s == state})
	}
	if filtered {
		view.Filter.Clear = page.Href(v.link(capabilitiesPath))
	}
	if given.Get("cursor") != "" {
		view.First = at("")
	}
	query := url.Values{"limit": {strconv.Itoa(onPage)}}
	for name := range asked {
		query.Set(name, asked.Get(name))
	}
	if cursor := given.Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	got, err := httpclient.GetJSON[heldPage](v.r.Context(), v.server, apiCapabilities, query, mostCapabilities, "page of capabilities")
	status := http.StatusOK
	if err != nil {
		if status = httpclient.StatusOf(err); status != http.StatusBadRequest {
			v.fail(err)
			return
		}
		view.Mistake = page.Of(detailOf(err))
	}
	for _, one := range got.Items {
		if v.me.May(capabilityAdmin, one.Tenant) { // others are those that the person has asked for
			view.Rows = append(view.Rows, v.heldOf(&one, fewTools))
		}
	}
	if got.Next != "" {
		view.Next = at(got.Next)
	}
	v.show(status, view)
}

// stateName is the value of a choice of a state.
func stateName(s page.Status) string {
	if s == page.Unknown {
		return "all"
	}
	return string(s.Name())
}

// underWay are uses of which it is not known yet if they are on record.
func (v *visit) underWay(all []inbox.InFlight, ended bool) (shown []page.UnderWay) {
	for _, one := range all {
		shown = append(shown, page.UnderWay{Decision: page.IDOf(one.Decision), Origin: page.Word(one.Origin), Since: v.moment(one.Since), Was: ended})
	}
	return shown
}

// heldOf is a capability as pages show it, with so many of its tools.
func (v *visit) heldOf(c *held, tools int) page.Held {
	shown := page.Held{
		Holder:       page.Word(c.Holder.Type + "/" + c.Holder.ID),
		Audience:     page.Word(c.Audience),
		Tenant:       page.Word(c.Tenant),
		Key:          page.Word(c.JKT),
		State:        page.StatusOf(c.State),
		Until:        v.moment(c.Expires),
		Used:         c.Used,
		Uses:         c.MaxUses,
		UnderWay:     v.underWay(c.InFlight, !slices.Contains([]page.Status{page.Active, page.Suspended, page.Asked}, page.StatusOf(c.State))),
		MoreTools:    max(0, len(c.Tools)-tools),
		AnyArguments: c.Arguments == nil,
	}
	if id := page.IDOf(c.ID); !id.None() {
		shown.Link = page.Href(v.link(capabilitiesPath + "/" + id.String()))
	}
	// What is open-ended is among those that are shown.
	all := func(tool string) bool { return strings.HasSuffix(tool, ":*") }
	ordered := slices.Clone(c.Tools)
	slices.SortStableFunc(ordered, func(a, b string) int {
		switch {
		case all(a) == all(b):
			return 0
		case all(a):
			return -1
		}
		return 1
	})
	for _, tool := range ordered[:len(ordered)-shown.MoreTools] {
		shown.Tools = append(shown.Tools, page.Tool{ID: page.Word(tool), All: all(tool)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Arguments)) {
		if name == "*" {
			shown.OtherArguments = true
			continue
		}
		shown.Arguments = append(shown.Arguments, page.Argument{Name: page.Word(name), Any: c.Arguments[name] == "wildcard"})
	}
	return shown
}

// heldAttempt is a revocation that did not count: the reason that the person typed, and the fault.
type heldAttempt struct {
	reason  string
	missing page.Field
	mistake page.Label
	detail  string
}

// capability is the page of one capability.
func (v *visit) capability() { v.showCapability(http.StatusOK, heldAttempt{}) }

// capabilityNamed asks for the capability of the path. If the person may not take back what there is, it is as if there
// was none.
func (v *visit) capabilityNamed() (one held, ok bool) {
	id := page.IDOf(v.r.PathValue("id"))
	if id.None() {
		v.problem(http.StatusNotFound)
		return held{}, false
	}
	one, err := httpclient.GetJSON[held](v.r.Context(), v.server, apiCapabilities+"/"+id.String(), nil, mostCapabilities, "capability")
	if err != nil {
		v.fail(err)
		return held{}, false
	}
	if !v.me.May(capabilityAdmin, one.Tenant) { // it is one that the person asked for
		v.problem(http.StatusNotFound)
		return held{}, false
	}
	one.ID = id.String()
	return one, true
}

func (v *visit) showCapability(status int, tried heldAttempt) {
	one, ok := v.capabilityNamed()
	if !ok {
		return
	}
	to := capabilitiesPath + "/" + one.ID + "/revoke"
	view := page.Capability{
		Layout:     v.layout("Capability"),
		ID:         page.IDOf(one.ID),
		Held:       v.heldOf(&one, len(one.Tools)),
		Mistake:    tried.mistake,
		Detail:     page.Of(tried.detail),
		Revoke:     slices.Contains([]page.Status{page.Asked, page.Active, page.Suspended}, page.StatusOf(one.State)),
		Revocation: page.Form{Action: page.Href(v.link(to)), Token: page.Token(v.token(http.MethodPost, to, one.ID, 0, ""))},
		Reason:     page.Typed(tried.reason),
		Missing:    tried.missing,
	}
	view.Layout.About = view.ID
	v.show(status, view)
}

// revokeCapability takes a capability back, and shows it. The reason goes on record.
func (v *visit) revokeCapability() {
	one, ok := v.capabilityNamed()
	if !ok {
		return
	}
	tried := heldAttempt{reason: v.form.Get("reason")}
	reason := strings.TrimSpace(tried.reason)
	if reason == "" {
		tried.missing = page.ReasonField
		v.showCapability(http.StatusUnprocessableEntity, tried)
		return
	}
	at := apiCapabilities + "/" + one.ID
	said := map[string]string{"reason": reason}
	now, err := httpclient.PostJSON[held](v.r.Context(), v.server, at+"/revoke", said, mostCapabilities, "capability")
	status := httpclient.StatusOf(err)
	if status == http.StatusConflict { // a person who clicks twice sends a form twice, and sees the answer to the second
		now, _ = httpclient.GetJSON[held](v.r.Context(), v.server, at, nil, mostCapabilities, "capability")
	}
	if now.State == string(page.Revoked) {
		v.redirect(capabilitiesPath + "/" + one.ID)
		return
	}
	mistake, known := mistakes[status]
	if !known {
		v.fail(err)
		return
	}
	tried.mistake, tried.detail = mistake, detailOf(err)
	v.showCapability(status, tried)
}
