package broker

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
)

// Unbound names the parts of a request that people are shown and that may differ when it is done: the author of the
// policies did not bind the approval to them.
func Unbound(a approval.Approval) (names []string) {
	if !a.RedactedAt.IsZero() { // people are shown nothing of it
		return nil
	}
	bound := func(name string) bool { return slices.Contains(a.Terms.Material, name) }
	type part struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	var shown struct {
		Subject  part                      `json:"subject"`
		Action   part                      `json:"action"`
		Resource part                      `json:"resource"`
		Context  map[string]jsontext.Value `json:"context"`
	}
	if json.Unmarshal(a.Shown, &shown) != nil {
		return []string{"request"} // a request that cannot be read is not the bound one
	}
	delete(shown.Resource.Properties, "digest") // which is bound in any case
	for name, p := range map[string]part{"action": shown.Action, "resource": shown.Resource, "subject": shown.Subject} {
		if len(p.Properties) > 0 && !bound(name) {
			names = append(names, name+".properties")
		}
	}
	for member := range shown.Context {
		whole := bound("context") && slices.Contains(a.Members, member)
		if !whole && !bound("context."+member) && !evaluation.NamesActors(member) {
			names = append(names, "context."+member)
		}
	}
	slices.Sort(names)
	return names
}
