package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/httpclient"
)

// facts are the answers of the API about one approval request. A failed one has an error; without the request there
// is no page, and without the reasons for it there are no buttons.
type facts struct {
	approval inbox.Request
	why      inbox.Why
	deciders inbox.Deciders
	last     *inbox.Request // the last one like it; nil if there is none
	waiting  inbox.Page

	noApproval, noWhy, noDeciders, noLast, noWaiting error
}

// ask asks all of it at once.
func (f *facts) ask(ctx context.Context, api *inbox.Inbox, id string) {
	var g errgroup.Group
	g.Go(func() error { f.approval, f.noApproval = api.Get(ctx, id, 0); return nil })
	g.Go(func() error { f.why, f.noWhy = api.Why(ctx, id); return nil })
	g.Go(func() error { f.deciders, f.noDeciders = api.Deciders(ctx, id); return nil })
	g.Go(func() error { f.waiting, f.noWaiting = api.List(ctx, mine, "", onPage); return nil })
	g.Go(func() error {
		last, found, err := api.Previous(ctx, id)
		if f.noLast = err; found {
			f.last = &last
		}
		return nil
	})
	_ = g.Wait() // each error has its place
}

// mine picks the approval requests that wait for the person.
var mine = inbox.Filter{Status: "pending", Voted: new(bool)}

// failed is the reason why there is no page: the request is not to be had, or the person is not logged in any more.
func (f *facts) failed() error {
	for _, err := range []error{f.noWhy, f.noDeciders, f.noLast, f.noWaiting} {
		if httpclient.StatusOf(err) == http.StatusUnauthorized {
			return err
		}
	}
	return f.noApproval
}

// digest is that of the question and its terms as the API has them now. A form of a page that showed all of them whole
// has it.
func (f *facts) digest() string { return sumOf(sha256.New(), string(f.approval.JSON), f.why.ValidFor) }

// attempt is a ruling that did not count: the words that the person typed, and the fault.
type attempt struct {
	decision, reason, to string
	missing              page.Field
	mistake              page.Label
	detail               string
	unseen               bool // the page did not show all of it
}

// request is the page of one approval request.
func (v *visit) request() { v.showRequest(http.StatusOK, attempt{}) }

// whole reports if the page shows long texts whole: the person asks for that, or has the page in front of them.
func (v *visit) whole(f *facts, tried attempt) bool {
	return v.r.URL.Query().Has(wholeField) || tried.unseen || v.form.Get(shownField) == f.digest()
}

// wholeField is in the address of a page that shows long texts whole.
const wholeField = "whole"

func (v *visit) showRequest(status int, tried attempt) {
	id := v.r.PathValue("id")
	if page.IDOf(id).None() {
		v.problem(http.StatusNotFound)
		return
	}
	var f facts
	f.ask(v.r.Context(), v.api, id)
	if err := f.failed(); err != nil {
		v.fail(err)
		return
	}
	v.show(status, v.requestView(&f, tried))
}

// decide approves, denies or delegates.
func (v *visit) decide() {
	said := inbox.Ruling{
		Decision: v.form.Get("decision"),
		Reason:   strings.TrimSpace(v.form.Get("reason")),
		To:       strings.TrimSpace(v.form.Get("to")),
		Version:  v.version,
	}
	if !slices.Contains([]string{approve, deny, delegate}, said.Decision) {
		v.problem(http.StatusBadRequest)
		return
	}
	v.rule(said, v.api.Decide)
}

const (
	approve  = "approve"
	deny     = "deny"
	delegate = "delegate"
	revoke   = "revoke"
)

// revoke takes an approval back.
func (v *visit) revoke() {
	v.rule(inbox.Ruling{Reason: strings.TrimSpace(v.form.Get("reason")), Version: v.version}, v.api.Revoke)
}

// rule has a ruling count, and shows the result. If it does not count, the page of the approval request as it is
// now says why, and keeps the words that were typed.
func (v *visit) rule(said inbox.Ruling, count func(context.Context, string, inbox.Ruling) (inbox.Request, error)) {
	id := v.r.PathValue("id")
	tried := attempt{decision: said.Decision, reason: v.form.Get("reason"), to: v.form.Get("to")}
	if tried.missing = missing(said); tried.missing != page.NoField {
		v.showRequest(http.StatusUnprocessableEntity, tried)
		return
	}
	if said.Decision == approve && !v.sawAll(said, tried) {
		return
	}
	_, err := count(v.r.Context(), id, said)
	if err == nil || httpclient.StatusOf(err) == http.StatusConflict && v.saidAlready(id, said) {
		v.redirect(approvalsPath + "/" + id)
		return
	}
	status := httpclient.StatusOf(err)
	mistake, known := mistakes[status]
	if !known {
		v.fail(err)
		return
	}
	tried.mistake, tried.detail = mistake, detailOf(err)
	v.showRequest(status, tried)
}

// sawAll reports if the form is of a page that showed all that there is now to approve. Otherwise it shows such a page. A
// form of an earlier version is for the API, which lets it count for nothing.
func (v *visit) sawAll(said inbox.Ruling, tried attempt) bool {
	var f facts
	f.ask(v.r.Context(), v.api, v.r.PathValue("id"))
	if err := f.failed(); err != nil {
		v.fail(err)
		return false
	}
	if v.hadSeen(&f, said.Version) {
		return true
	}
	tried.unseen, tried.mistake = true, "You had not seen all of it; here it is whole. Read it, and approve again."
	v.show(http.StatusUnprocessableEntity, v.requestView(&f, tried))
	return false
}

// hadSeen is false for a form of a later version, too: the request just read may be older than the one that the API decides
// about.
func (v *visit) hadSeen(f *facts, version int) bool {
	return version < f.approval.Version || v.form.Get(shownField) == f.digest()
}

// saidAlready reports if the very same was the next thing that happened, said by this person: a person who clicks twice sends
// a form twice, and sees the answer to the second.
func (v *visit) saidAlready(id string, said inbox.Ruling) bool {
	now, err := v.api.Get(v.r.Context(), id, 0)
	if err != nil || now.Version != said.Version+1 {
		return false
	}
	if said.Decision == "" { // a revocation is no vote, and the page names no person for it
		return now.Status == "revoked"
	}
	if len(now.Said) == 0 {
		return false
	}
	last := now.Said[len(now.Said)-1]
	return v.me.Principal != "" && last.By == v.me.Principal && last.Decision == said.Decision && last.Reason == said.Reason && last.To == said.To
}

// mistakes are why a ruling does not count, by the status of the API's answer.
var mistakes = map[int]page.Label{
	http.StatusBadRequest:          "This was not taken, and nothing was decided.",
	http.StatusForbidden:           "You may not do this, and nothing was decided.",
	http.StatusConflict:            "It has changed since you opened it, and nothing was decided. This is how it is now.",
	http.StatusUnprocessableEntity: "This was not taken, and nothing was decided.",
	http.StatusTooManyRequests:     "There is too much to do at the moment, and nothing was decided. Try again.",
	http.StatusServiceUnavailable:  "It could not be put on record, and does not count until it is. Look again in a moment.",
}

// detailOf is the detail of the API's refusal.
func detailOf(err error) string {
	var refused *httpclient.Error
	if errors.As(err, &refused) {
		return refused.Detail
	}
	return ""
}

// missing is the field that a ruling lacks.
func missing(said inbox.Ruling) page.Field {
	inReason := page.ReasonField
	switch {
	case said.Decision == delegate && said.To == "":
		return page.PersonField
	case said.Decision == delegate:
		inReason = page.ToReasonField
	case said.Decision == "": // a revocation needs no reason
		return page.NoField
	}
	if said.Reason == "" {
		return inReason
	}
	return page.NoField
}
