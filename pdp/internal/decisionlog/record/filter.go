package record

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
)

// Filter selects records. A record must match every field that is set; the zero Filter selects all.
type Filter struct {
	// Tenants, unless nil, are the tenants whose records the reader may see. Other records, and those without a tenant,
	// such as a start, do not match.
	Tenants []string `json:"tenants,omitzero"`
	// From is the first moment that matches, To the first one after it that does not.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Tenant is the record's, Kind one of [format.KindDecision], [format.KindPossible], [format.KindSearch], [format.KindAdmin], ….
	Tenant string `json:"tenant,omitzero"`
	Kind   string `json:"kind,omitzero"`
	// Decision is an answer, such as [Allow]; see [Recorded.Answer].
	Decision string `json:"decision,omitzero"`
	// Subject and Resource are an id, or "type/id".
	Subject  string `json:"subject,omitzero"`
	Resource string `json:"resource,omitzero"`
	Action   string `json:"action,omitzero"`
	// Policy is the ID of a policy that made the decision, that erred in it, or whose allow was overruled.
	Policy string `json:"policy,omitzero"`
	// Event is the event of an administrative record.
	Event string `json:"event,omitzero"`
	// Of is the ID of a decision. It matches the receipts of the decision.
	Of string `json:"of,omitzero"`
	// Approval is the ID of an approval request. It matches the steps of the request and the decisions that used it.
	Approval string `json:"approval,omitzero"`
	// Capability is the ID of a capability. It matches the steps of the capability, the decisions that granted it, those on
	// calls that presented it, and the same records of all capabilities derived from it.
	Capability string `json:"capability,omitzero"`
	// Text is a word, or a few, that the record contains: see [Sieve].
	Text string `json:"text,omitzero"`
}

// MatchesAll reports whether the filter selects every record.
func (f Filter) MatchesAll() bool {
	return f.Tenants == nil && f.From.IsZero() && f.To.IsZero() &&
		f.Tenant == "" && f.Kind == "" && f.Decision == "" && f.Subject == "" && f.Resource == "" && f.Action == "" && f.Policy == "" && f.Event == "" && f.Of == "" && f.Approval == "" && f.Capability == "" && f.Text == ""
}

// Check returns an error for a filter that no record could match.
func (f Filter) Check() error {
	switch f.Decision {
	case "", Allow, Waiting, Deny, Possible, Impossible:
	default:
		return fmt.Errorf("%q is no decision; ask for allow, waiting or deny", f.Decision)
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return fmt.Errorf("nothing is at or after %s and before %s; see to the order of the two", f.From.Format(time.RFC3339), f.To.Format(time.RFC3339))
	}
	if n := utf8.RuneCountInString(f.Text); f.Text != "" && (n < minText || n > maxText || !utf8.ValidString(f.Text)) {
		return fmt.Errorf("the text %w", ErrText)
	}
	return nil
}

// Matches reports whether a line matches, without looking at its batch. A line that is not a record is an error, never a
// mismatch: it must not be skipped silently.
func (f Filter) Matches(line []byte) (bool, error) {
	s := f.newSieve()
	return s.Passes(line)
}

// Passes reports whether a record, or one of the questions of a batch, matches all fields except Text.
func (f Filter) Passes(r *Recorded) bool {
	if r.Items == nil {
		return f.passesAlone(r)
	}
	passes := f.passesAlone(r)
	for q, err := range r.EachQuestion() {
		if err != nil {
			return false
		}
		passes = passes || f.passesAlone(q)
	}
	return passes
}

func (f Filter) passesAlone(r *Recorded) bool {
	return (f.From.IsZero() || !r.Time.Before(f.From)) &&
		(f.To.IsZero() || r.Time.Before(f.To)) &&
		(f.Tenants == nil || slices.Contains(f.Tenants, r.Tenant)) &&
		(f.Tenant == "" || f.Tenant == r.Tenant) &&
		(f.Kind == "" || f.Kind == r.Kind) &&
		(f.Decision == "" || f.Decision == r.Answer()) &&
		(f.Subject == "" || hasName(r.Names.Subject, f.Subject)) &&
		(f.Resource == "" || hasName(r.Names.Resource, f.Resource)) &&
		(f.Action == "" || f.Action == r.Names.Action.Name) &&
		(f.Policy == "" || r.decidedBy(f.Policy)) &&
		(f.Event == "" || f.Event == r.Event) &&
		(f.Of == "" || r.Receipt().Decision == f.Of) &&
		(f.Approval == "" || slices.Contains(r.Approvals(), f.Approval)) &&
		(f.Capability == "" || slices.Contains(r.Capabilities(), f.Capability))
}

func (r *Recorded) decidedBy(policy string) bool {
	erred := func(e evaluation.PolicyError) bool { return e.Policy == policy }
	return slices.Contains(r.Determining, policy) || slices.Contains(r.Overruled, policy) ||
		slices.ContainsFunc(r.Errors, erred)
}

// Approvals returns the IDs of the approval requests that a record is a step of or that its decision used.
func (r *Recorded) Approvals() (ids []string) {
	for _, d := range r.Discharged {
		ids = append(ids, d.Approval)
	}
	if id := r.stepIDs().Approval; id != "" {
		ids = append(ids, id)
	}
	return ids
}

// Capabilities returns the IDs of the capability that a record is a step of, or that its decision granted or used, and of its
// ancestors.
func (r *Recorded) Capabilities() (ids []string) {
	if c := r.Capability; c != nil {
		return append([]string{c.ID}, c.Ancestors...)
	}
	of := r.stepIDs()
	return append([]string{of.Capability}, of.Ancestors...)
}

// stepIDs returns the approval request and the capability that a record is a step of.
func (r *Recorded) stepIDs() (of struct {
	Approval   string   `json:"approval"`
	Capability string   `json:"capability"`
	Ancestors  []string `json:"ancestors"`
}) {
	if len(r.Details) > 0 && json.Unmarshal(r.Details, &of) != nil {
		of.Approval, of.Capability, of.Ancestors = "", "", nil
	}
	return of
}

// hasName reports whether name is the ID or the "type/id" of an entity.
func hasName(e evaluation.Ref, name string) bool {
	return e.ID != "" && (name == e.ID || name == e.Type+"/"+e.ID)
}
