package capability

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/ledger"
)

// Step is one step of a capability as it goes on record.
type Step struct {
	ID   string    `json:"id"` // of the record
	At   time.Time `json:"at"`
	Name string    `json:"name"`
	// By is who revoked it, or gave it back, and Reason is why.
	By     string `json:"by,omitzero"`
	Reason string `json:"reason,omitzero"`
	// Decision is the one that used, granted or renewed it, or that was to.
	Decision string `json:"decision,omitzero"`
	// Grants says, of a step without a name, that the decision granted or renewed it, and did not use it.
	Grants bool `json:"grants,omitzero"`
	// Lost is the origin that reserved what Decision is said to have used, and whose log will never say if it has.
	Lost string `json:"lost,omitzero"`
	// Seal is made with the key of capabilities. Without the key no program writes a step that gives something.
	Seal string `json:"seal,omitzero"`
	// Capability is as it is after the step.
	Capability Capability `json:"capability"`
}

// The names of steps. A step that ends a capability is named as the state.
const (
	StepGranted   = "granted"   // the decision that grants it is on record: it can be used
	StepUsed      = "used"      // a decision was made by it
	StepUsedUp    = "used_up"   // that was the last use
	StepRevoked   = "revoked"   // somebody took it back
	StepReturned  = "returned"  // its holder gave it back
	StepSuspended = "suspended" // the policies of Bundle would not grant it
	StepResumed   = "resumed"   // the policies of Bundle would grant it again
	StepRenewed   = "renewed"   // it has another token, by another decision
	StepExpired   = "expired"   // its time was up
	StepReleased  = "released"  // a decision that was to use, grant or renew it is not on record
	StepCaughtUp  = "caught_up" // the file was behind the log, and is not any more
)

// StepGone stands among the steps of [Options].Steps for a record without content, which may have been any step. If there
// are several such records, it stands for the last one. The number of the record is in Capability.After. This step is
// never recorded.
const StepGone = "gone"

// outcomes are the steps that say what became of a reservation.
var outcomes = []string{StepGranted, StepUsed, StepUsedUp, StepRenewed, StepReleased}

// Entry implements [ledger.Step].
func (s Step) Entry() ledger.Entry {
	c := &s.Capability
	e := ledger.Entry{ID: s.ID, Item: c.ID, Tenant: c.Tenant, Caller: c.Caller, Settles: slices.Contains(outcomes, s.Name)}
	if s.Name == StepGranted || s.Name == StepRenewed {
		e.Proves = []string{s.ID}
	}
	return e
}

// seal is made of all that a step brings about of a capability.
func (s *Store) seal(step *Step, c *Capability) string {
	text, err := json.Marshal([]any{
		step.ID, step.Capability.ID, step.Name, step.By, step.Decision, step.Capability.Version, step.Capability.State,
		c.Tenant, c.Caller, c.Holder, c.JKT, c.Audience, c.Expires.UnixNano(), c.MaxUses, c.Digest,
	})
	if err != nil { // of a text that is no UTF-8: no record says it in these words
		return ""
	}
	mac := hmac.New(sha256.New, s.sealKey)
	_, _ = mac.Write(text) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sealed reports whether a step from the log was written with the key, about the capability with the token that it has.
func (s *Store) sealed(step *Step, c *Capability) bool {
	want := s.seal(step, c)
	return want != "" && hmac.Equal([]byte(want), []byte(step.Seal))
}

// attest reads the record of a grant or a renewal, if the log of its origin vouches for it. That of another origin needs its
// proof: there is no answer without one.
func (s *Store) attest(ctx context.Context, c *Capability) (step Step, found bool, err error) {
	switch c.GrantedIn {
	case s.options.Origin:
		return s.options.Attest(ctx, c.Granted)
	case "": // it was written before there were others
		if step, found, err = s.options.Attest(ctx, c.Granted); err == nil && !found {
			err = fmt.Errorf("%w: it is not in this log, and the capability does not say in which it is", ErrUnavailable)
		}
		return step, found, err
	default:
		stored, err := s.ledger.Proof(c.ID, c.Granted, c.GrantedIn)
		if err != nil {
			return step, false, err
		}
		if step, err = s.options.Verify(stored); err != nil {
			err = fmt.Errorf("%w: the proof of %s: %w", ErrUnavailable, c.GrantedIn, err)
		}
		return step, err == nil, err
	}
}

// vouched reports whether the log vouches for the record of the grant of a capability, or of its last renewal. If the log is
// that of another origin, and does not, it is an error: that log may vouch for it all the same.
func (s *Store) vouched(ctx context.Context, c *Capability) (is bool, err error) {
	if c.Granted == "" {
		return false, nil
	}
	step, found, err := s.attest(ctx, c)
	of := step.Name == StepGranted || step.Name == StepRenewed
	is = found && of && step.ID == c.Granted && step.Capability.ID == c.ID && s.sealed(&step, c)
	if err == nil && !is && c.GrantedIn != s.options.Origin {
		err = fmt.Errorf("%w: its proof is of another record of %s", ErrUnavailable, c.GrantedIn)
	}
	if err != nil {
		return false, fmt.Errorf("whether the log has step %s of capability %s: %w", c.Granted, c.ID, err)
	}
	return is, nil
}
