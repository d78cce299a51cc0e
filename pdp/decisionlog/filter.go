package decisionlog

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
	// Decision is "allow" or "deny".
	Decision string `json:"decision,omitzero"`
	// Subject and Resource are an id, or "type/id".
	Subject  string `json:"subject,omitzero"`
	Resource string `json:"resource,omitzero"`
	Action   string `json:"action,omitzero"`
	// Policy is the id of a policy that made the decision, or that erred in it.
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
	if f.Decision != "" && f.Decision != "allow" && f.Decision != "deny" {
		return fmt.Errorf("%q is no decision; ask for allow or deny", f.Decision)
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return fmt.Errorf("nothing is at or after %s and before %s; see to the order of the two", f.From.Format(time.RFC3339), f.To.Format(time.RFC3339))
	}
	return nil
}

// seen is what filters, tables and counts read of a record line. A line has more,
// and this need not know it.
type seen struct {
	Sequence int64     `json:"sequence"`
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Behind   bool      `json:"clock_behind"`
	Kind     string    `json:"kind"`
	Tenant   string    `json:"tenant"`
	Caller   string    `json:"caller"`
	Decision *bool     `json:"decision"`
	Reason   string    `json:"reason"`
	Bundle   string    `json:"bundle"`
	Request  struct {
		Subject  seenEntity `json:"subject"`
		Action   seenAction `json:"action"`
		Resource seenEntity `json:"resource"`
	} `json:"request"`
	Determining []string `json:"determining"`
	Errors      []struct {
		Policy string `json:"policy"`
		Kind   string `json:"kind"`
	} `json:"errors"`
	Obligations []seenObligation `json:"obligations"`
	Discharged  []struct {
		Approval string `json:"approval"`
	} `json:"discharged"`
	Event   string         `json:"event"`
	Details jsontext.Value `json:"details"`
}

type seenObligation struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

type seenEntity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type seenAction struct {
	Name string `json:"name"`
}

// Matches reports whether a record line passes. A line that is no record is an
// error, never a record that does not match: it must not be passed over.
func (f Filter) Matches(line []byte) (bool, error) {
	if f.All() {
		return true, nil
	}
	var s seen
	if err := json.Unmarshal(line, &s); err != nil {
		return false, fmt.Errorf("not a record: %w", err)
	}
	return f.passes(&s), nil
}

func (f Filter) passes(s *seen) bool {
	return (f.From.IsZero() || !s.Time.Before(f.From)) &&
		(f.To.IsZero() || s.Time.Before(f.To)) &&
		(f.Tenants == nil || slices.Contains(f.Tenants, s.Tenant)) &&
		(f.Tenant == "" || f.Tenant == s.Tenant) &&
		(f.Kind == "" || f.Kind == s.Kind) &&
		(f.Decision == "" || f.Decision == s.answer()) &&
		(f.Subject == "" || s.Request.Subject.is(f.Subject)) &&
		(f.Resource == "" || s.Request.Resource.is(f.Resource)) &&
		(f.Action == "" || f.Action == s.Request.Action.Name) &&
		(f.Policy == "" || s.decidedBy(f.Policy)) &&
		(f.Event == "" || f.Event == s.Event) &&
		(f.Of == "" || s.receipt().Decision == f.Of) &&
		(f.Approval == "" || s.goesBy(f.Approval))
}

// answer is "allow", "deny", or "" for a record that holds no decision.
func (s *seen) answer() string {
	switch {
	case s.Decision == nil:
		return ""
	case *s.Decision:
		return "allow"
	}
	return "deny"
}

func (s *seen) decidedBy(policy string) bool {
	for _, e := range s.Errors {
		if e.Policy == policy {
			return true
		}
	}
	return slices.Contains(s.Determining, policy)
}

// goesBy reports whether a record is a step of an approval request, or of a decision
// that went by it.
func (s *seen) goesBy(approval string) bool {
	for _, d := range s.Discharged {
		if d.Approval == approval {
			return true
		}
	}
	var of struct {
		Approval string `json:"approval"`
	}
	return len(s.Details) > 0 && json.Unmarshal(s.Details, &of) == nil && of.Approval == approval
}

func (e seenEntity) is(name string) bool {
	return e.ID != "" && (name == e.ID || name == e.Type+"/"+e.ID)
}
