package decisionlog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/index"
)

// Filter picks records. Everything that is set must hold; the zero Filter picks
// all.
type Filter struct {
	// Tenants, where there is a list, are the tenants whose records somebody may
	// see: others, and those of none, such as a start, are as if they were not there.
	Tenants []string `json:"tenants,omitzero"`
	// From is the first moment that counts, To the first that no longer does.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Tenant is the record's, Kind one of [KindDecision], [KindSearch], [KindAdmin], ….
	Tenant string `json:"tenant,omitzero"`
	Kind   string `json:"kind,omitzero"`
	// Decision is an answer, such as [Allow]; see [Recorded.Answer].
	Decision string `json:"decision,omitzero"`
	// Subject and Resource are an id, or "type/id".
	Subject  string `json:"subject,omitzero"`
	Resource string `json:"resource,omitzero"`
	Action   string `json:"action,omitzero"`
	// Policy is the id of a policy that made the decision, or that erred in it, or whose allow
	// a reason made a deny of.
	Policy string `json:"policy,omitzero"`
	// Event is that of an administrative record.
	Event string `json:"event,omitzero"`
	// Of is the id of a decision, whose receipts are meant.
	Of string `json:"of,omitzero"`
	// Approval is the id of an approval request, of which the steps are meant and the
	// decisions that went by it.
	Approval string `json:"approval,omitzero"`
}

// All reports whether every record passes.
func (f Filter) All() bool {
	return f.Tenants == nil && f.From.IsZero() && f.To.IsZero() &&
		f.Tenant == "" && f.Kind == "" && f.Decision == "" && f.Subject == "" && f.Resource == "" && f.Action == "" && f.Policy == "" && f.Event == "" && f.Of == "" && f.Approval == ""
}

// Check says what is wrong with a filter that no record could ever pass.
func (f Filter) Check() error {
	switch f.Decision {
	case "", Allow, Waiting, Deny, Possible, Impossible:
	default:
		return fmt.Errorf("%q is no decision; ask for allow, waiting or deny", f.Decision)
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return fmt.Errorf("nothing is at or after %s and before %s; see to the order of the two", f.From.Format(time.RFC3339), f.To.Format(time.RFC3339))
	}
	return nil
}

// Matches reports whether a record line passes. A line that is no record is an
// error, never a record that does not match: it must not be passed over.
func (f Filter) Matches(line []byte) (bool, error) {
	if f.All() {
		return true, nil
	}
	r, err := Parse(line)
	return err == nil && f.Passes(r), err
}

// Passes reports whether a record passes.
func (f Filter) Passes(r *Recorded) bool {
	return (f.From.IsZero() || !r.Time.Before(f.From)) &&
		(f.To.IsZero() || r.Time.Before(f.To)) &&
		(f.Tenants == nil || slices.Contains(f.Tenants, r.Tenant)) &&
		(f.Tenant == "" || f.Tenant == r.Tenant) &&
		(f.Kind == "" || f.Kind == r.Kind) &&
		(f.Decision == "" || f.Decision == r.Answer()) &&
		(f.Subject == "" || named(r.Names.Subject, f.Subject)) &&
		(f.Resource == "" || named(r.Names.Resource, f.Resource)) &&
		(f.Action == "" || f.Action == r.Names.Action.Name) &&
		(f.Policy == "" || r.decidedBy(f.Policy)) &&
		(f.Event == "" || f.Event == r.Event) &&
		(f.Of == "" || r.Receipt().Decision == f.Of) &&
		(f.Approval == "" || r.goesBy(f.Approval))
}

func (r *Recorded) decidedBy(policy string) bool {
	erred := func(e evaluation.PolicyError) bool { return e.Policy == policy }
	return slices.Contains(r.Determining, policy) || slices.Contains(r.Overruled, policy) ||
		slices.ContainsFunc(r.Errors, erred)
}

// goesBy reports whether a record is a step of an approval request, or of a decision
// that went by it.
func (r *Recorded) goesBy(approval string) bool {
	if slices.ContainsFunc(r.Discharged, func(d evaluation.Met) bool { return d.Approval == approval }) {
		return true
	}
	var of struct {
		Approval string `json:"approval"`
	}
	return len(r.Details) > 0 && json.Unmarshal(r.Details, &of) == nil && of.Approval == approval
}

// named reports whether an entity is the one of an id, or of "type/id".
func named(e evaluation.Ref, name string) bool {
	return e.ID != "" && (name == e.ID || name == e.Type+"/"+e.ID)
}

// terms are what a record must have: of each list one at least, the lists that are short
// as a rule first. None says that the index is of no help.
func (f Filter) terms() (all [][]string) {
	one := func(letter byte, value string) {
		if value != "" {
			all = append(all, []string{index.Term(letter, value)})
		}
	}
	one(index.TermOf, f.Of)
	one(index.TermApproval, f.Approval)
	for letter, name := range map[byte]string{index.TermSubject: f.Subject, index.TermResource: f.Resource} {
		if name != "" {
			all = append(all, entityTerms(letter, name))
		}
	}
	one(index.TermPolicy, f.Policy)
	one(index.TermAction, f.Action)
	one(index.TermEvent, f.Event)
	one(index.TermTenant, f.Tenant)
	if f.Tenants != nil {
		any := make([]string, len(f.Tenants))
		for i, tenant := range f.Tenants {
			any[i] = index.Term(index.TermTenant, tenant)
		}
		all = append(all, any)
	}
	one(index.TermDecision, f.Decision)
	one(index.TermKind, f.Kind)
	return all
}

// entityTerms are those of an id, or "type/id": both may have slashes in them.
func entityTerms(letter byte, name string) []string {
	terms := []string{index.Term(letter, name)}
	for rest, more := name, true; more; {
		if _, rest, more = strings.Cut(rest, "/"); more && rest != "" {
			terms = append(terms, index.Term(letter, rest))
		}
	}
	return terms
}
