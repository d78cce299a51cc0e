package tools

import (
	"fmt"
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// modes are those of the authorization of a tool that mean something.
var modes = []string{"user_approval", "automatic", "delegated"}

// checkHint looks at what a server says of whether its tool wants an approval.
func (k *checker) checkHint(t *tool) {
	hint, given := t.definition.Lookup("authorization")
	if !given {
		return
	}
	const counts = ", so it counts as required: true"
	const mend = "have the server's author mend it"
	if hint.Kind() != evaluation.Map {
		k.atTool(t, "/authorization", true, "authorization is no object"+counts, mend)
		return
	}
	h := hint.Object()
	if mode, ok := h.Get("mode"); ok && !slices.Contains(modes, mode.Text()) {
		k.atTool(t, "/authorization/mode", true, "authorization has a mode that there is none of"+counts, mend+": user_approval, automatic or delegated")
	}
	if timeout, ok := h.Get("timeout"); ok {
		if n, whole := timeout.Scaled(0); !whole || n <= 0 {
			k.atTool(t, "/authorization/timeout", true, "authorization has a timeout that is no number of seconds above 0"+counts, mend)
		}
	}
	demands := k.demands(t)
	required, ok := h.Get("required")
	switch {
	case ok && required.Kind() != evaluation.Bool:
		k.atTool(t, "/authorization/required", true, "authorization has a required that is neither true nor false"+counts, mend)
	case ok && required.True() && k.bundle != nil && len(demands) == 0:
		k.atTool(t, "/authorization/required", true, "the server says that an approval is required, and no policy about "+t.id+" demands one",
			"write a permit with an @obligation of type approval_required, or one that reads resource.approval_hint.required")
	}
	k.checkWanted(t, h, demands)
}

// checkWanted looks for what a server wants of an approval and that none of those that policies demand can give it. Of one without
// a template nobody here knows how it goes on.
func (k *checker) checkWanted(t *tool, hint evaluation.Object, demands []*obligations.Definition) {
	delegable, longest := false, time.Duration(0)
	for _, d := range demands {
		terms, ok := obligations.TermsOf(evaluation.Obligation{Type: d.Type.Name, Properties: d.Properties})
		if !ok {
			return
		}
		delegable, longest = delegable || terms.Delegable, max(longest, terms.Timeout)
	}
	if len(demands) == 0 {
		return
	}
	if mode, _ := hint.Get("mode"); mode.Text() == "delegated" && !delegable {
		k.atTool(t, "/authorization/mode", true, "the server wants that who decides can name somebody else (mode: delegated), and no obligation about "+t.id+" lets them",
			"set delegable: true in the obligation, if you want it too")
	}
	if wants := evaluation.HintOf(hinted(hint)).Timeout; wants > longest {
		k.atTool(t, "/authorization/timeout", true, fmt.Sprintf("the timeout changes nothing: no approval of %s waits longer than %d seconds", t.id, longest/time.Second),
			"set timeout in the obligation, if people are to have longer")
	}
}

// hinted are the properties of a resource in which a hint stands as the gateway has it.
func hinted(hint evaluation.Object) evaluation.Object {
	return evaluation.Object{}.With(evaluation.HintMember, hint.Value())
}

// demands are the approvals that policies could demand of a tool's calls.
func (k *checker) demands(t *tool) (all []*obligations.Definition) {
	if k.bundle == nil {
		return nil
	}
	for _, p := range k.bundle.Contents() {
		for _, d := range p.Obligations {
			if d.Type.Name == obligations.ApprovalRequired && k.mayBeAbout(p, t) {
				all = append(all, d)
			}
		}
	}
	return all
}
