package console

import (
	"net/http"
	"slices"
	"strings"

	"policy-service/pdp/console/page"
)

// forms are the buttons of the person, one for each act that the API allows.
func (s *sheet) forms(tried attempt) page.Forms {
	r := &s.f.approval
	below := approvalsPath + "/" + r.ID
	form := func(path string) page.Form {
		token := s.v.token(http.MethodPost, path, r.ID, r.Version)
		return page.Form{Action: page.Href(s.v.link(path)), Token: page.Token(token)}
	}
	f := page.Forms{Decision: form(below + "/decision"), Revocation: form(below + "/revoke"), Version: r.Version}
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
