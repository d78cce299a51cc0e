package broker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/vouch"
)

// recordedStep are the details of a record of kind capability; its event is the step.
type recordedStep struct {
	Capability string         `json:"capability"`
	State      store.State    `json:"state"`
	Version    int            `json:"version"`
	Holder     evaluation.Ref `json:"holder"`
	JKT        string         `json:"jkt"`
	Audience   string         `json:"audience"`
	Tools      []string       `json:"tools,omitzero"`
	// Ancestors are the capabilities that it was made from, the parent first, and Grantor is who handed it on.
	Ancestors []string        `json:"ancestors,omitzero"`
	Grantor   *evaluation.Ref `json:"grantor,omitzero"`
	Expires   time.Time       `json:"expires"`
	MaxUses   int             `json:"max_uses,omitzero"`
	Used      int             `json:"used,omitzero"`
	// Decision is the one that used, granted or renewed it, or that was to.
	Decision string `json:"decision,omitzero"`
	// LostOrigin has reserved the use, and its log will never say if it was used: it counts as used.
	LostOrigin string `json:"lost_origin,omitzero"`
	Approval   string `json:"approval,omitzero"`
	Unproved   bool   `json:"unproved,omitzero"` // it was granted without a proof of the key
	By         string `json:"by,omitzero"`
	Reason     string `json:"reason,omitzero"`
	Bundle     string `json:"bundle"`
	Requester  string `json:"requester"`
	// Seal is the store's: it takes no step from the log without it.
	Seal string `json:"seal,omitzero"`
}

// record puts a step on record.
func (b *Broker) record(ctx context.Context, step store.Step) error {
	c := &step.Capability
	details := recordedStep{
		Capability: c.ID,
		State:      c.State,
		Version:    c.Version,
		Holder:     c.Holder,
		JKT:        c.JKT,
		Audience:   c.Audience,
		Expires:    c.Expires,
		MaxUses:    c.MaxUses,
		Used:       c.Used,
		Decision:   step.Decision,
		LostOrigin: step.Lost,
		By:         step.By,
		Reason:     step.Reason,
		Bundle:     c.Bundle,
		Requester:  c.Caller,
		Seal:       step.Seal,
		Ancestors:  c.Ancestors,
	}
	if step.Name == store.StepGranted || step.Name == store.StepRenewed {
		details.Approval, details.Unproved = c.Approval, strings.HasSuffix(c.Ask, unproved)
		details.Tools, details.Grantor = c.Token.Tools(), c.Token.Grantor
	}
	text, err := json.Marshal(details, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("the step %s of a capability has no JSON form: %w", step.Name, err)
	}
	return b.options.Log.Append(ctx, []record.Entry{{
		ID:      step.ID,
		Kind:    format.KindCapability,
		Tenant:  c.Tenant,
		Now:     step.At,
		Payer:   c.Caller,
		Event:   step.Name,
		Details: text,
	}})
}

// line is a record of a step or of a decision, as it is read back.
type line struct {
	ID         string             `json:"id"`
	Now        time.Time          `json:"now"`
	Kind       string             `json:"kind"`
	Event      string             `json:"event"`
	Capability *record.Capability `json:"capability"`
	Details    jsontext.Value     `json:"details"`
}

// stepsOf reads the step of a line, or those without a name for a decision that used, granted or renewed a capability. A use is
// one of its ancestors, too.
func stepsOf(text []byte) (all []store.Step, err error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	switch c := l.Capability; {
	case l.Kind == format.KindCapability:
		var d recordedStep
		if err := json.Unmarshal(l.Details, &d); err != nil {
			return nil, err
		}
		return []store.Step{{
			ID: l.ID, At: l.Now, Name: l.Event, By: d.By, Reason: d.Reason, Decision: d.Decision, Lost: d.LostOrigin, Seal: d.Seal,
			Capability: store.Capability{ID: d.Capability, State: d.State, Version: d.Version},
		}}, nil
	case l.Kind == format.KindDecision && c != nil && (c.Used || c.Grants):
		of := []string{c.ID}
		if c.Used {
			of = append(of, c.Ancestors...)
		}
		for _, id := range of {
			all = append(all, store.Step{ID: l.ID, At: l.Now, Decision: l.ID, Grants: c.Grants, Capability: store.Capability{ID: id}})
		}
	}
	return all, nil
}

// steps are those that the log has, as [store.Options] has them.
func (b *Broker) steps() vouch.Steps[store.Step] {
	return vouch.Steps[store.Step]{
		Log:   b.options.Log,
		KeyOf: b.options.KeyOf,
		Of:    stepsOf,
		Item:  func(s store.Step) string { return s.Capability.ID },
		Gone: func(id string, last uint64) store.Step {
			return store.Step{Name: store.StepGone, Capability: store.Capability{ID: id, After: last}}
		},
		None: "it is of no step",
	}
}
