package broker

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// recordedStep are the details of a record of kind approval; its event is the step.
type recordedStep struct {
	Approval string          `json:"approval"`
	Status   approval.Status `json:"status"`
	Version  int             `json:"version"`
	// Decision is the decision that waits. UsedBy is the one that used the approval, or went on from the use that
	// Continues names.
	Decision  string                  `json:"decision"`
	UsedBy    string                  `json:"used_by,omitempty"`
	Continues evaluation.Continuation `json:"continues,omitzero"`

	// LostOrigin has reserved the use, and its log will never say if it was used: it counts as used.
	LostOrigin string `json:"lost_origin,omitempty"`

	approval.Statement `json:",inline"`
	Obligation         string `json:"obligation"`
	Template           string `json:"template"`
	Quorum             int    `json:"quorum"`
	Message            string `json:"message,omitempty"`
	// Justification is the reason that came with the request, as approvers read it. It is there where the request is.
	Justification jsontext.Value `json:"justification,omitzero"`
	Requester     string         `json:"requester"`
	Bundle        string         `json:"bundle"`
	// Asked is the form in which the approval was asked for, "" for the native one, and Person for whom it was.
	Asked  string `json:"asked,omitempty"`
	Person string `json:"person,omitempty"`
	// OfTenant and SameClient are of the question who may vote; see [pdp.Reviewed].
	OfTenant   bool `json:"of_tenant,omitzero"`
	SameClient bool `json:"same_client,omitzero"`
	// NamesHidden says that a mask hides the name of somebody or something in the request.
	NamesHidden bool      `json:"names_hidden,omitzero"`
	FiledAt     time.Time `json:"filed_at"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	// Seal is the store's: it takes no step from the log without it.
	Seal string `json:"seal,omitempty"`
}

// record puts a step on record. It waits for the disk in best effort as well, because an approval that was seen must
// not be lost.
func (b *Broker) record(ctx context.Context, step approval.Step) error {
	entry, err := entryOfStep(step)
	if err != nil {
		return err
	}
	if err := b.options.Log.Append(ctx, []record.Entry{entry}); err != nil {
		return err
	}
	b.options.Count(step.Name)
	return nil
}

// entryOfStep is the record of a step. It has the request if a person was shown it.
func entryOfStep(step approval.Step) (record.Entry, error) {
	one := step.Approval
	shown := (step.Caller != "" || step.Name == approval.StepFiled) && one.RedactedAt.IsZero()
	var justification jsontext.Value
	if shown {
		justification = one.Said
	}
	details, err := marshal(recordedStep{
		Approval:   one.ID,
		Status:     one.Status,
		Version:    one.Version,
		Decision:   one.Decision,
		UsedBy:     step.Decision,
		Continues:  step.Continues,
		LostOrigin: step.Lost,
		Statement:  step.Statement,
		Obligation: one.Obligation,
		Template:   one.Terms.Template,
		Quorum:     one.Terms.Quorum,
		Message:    one.Terms.Message,

		Justification: justification,

		Requester:   one.Caller,
		Bundle:      one.Bundle,
		Asked:       one.Asked,
		Person:      one.Person,
		OfTenant:    one.OfTenant,
		SameClient:  one.Terms.SameClient,
		NamesHidden: shown && step.By != "" && hidesNames(&one),
		FiledAt:     one.FiledAt,
		ExpiresAt:   one.ExpiresAt,
		Seal:        step.Seal,
	})
	if err != nil {
		return record.Entry{}, fmt.Errorf("the step %s of an approval has no JSON form: %w", step.Name, err)
	}
	entry := record.Entry{
		ID:      step.ID,
		Kind:    format.KindApproval,
		Tenant:  one.Tenant,
		Caller:  step.Caller,
		Now:     step.At,
		Event:   step.Name,
		Details: details,
	}
	if step.Caller == "" {
		entry.Payer = one.Caller
	}
	if shown {
		entry.Request, err = shownRequest(one.Shown)
	}
	return entry, err
}

// hidesNames reports whether the request that people are shown names anything otherwise than the one that was made.
func hidesNames(one *approval.Approval) bool {
	limits := evaluation.DefaultLimits()
	limits.Body = format.MaxLine // masking may have made it longer
	shown, err := evaluation.DecodeAuthZEN(one.Shown, one.Tenant, limits)
	if err != nil {
		return true
	}
	actors, ok := shown.Actors()
	return !ok || one.Subject != shown.Subject.Ref() || one.Resource != shown.Resource.Ref() || one.Action != shown.Action.Name ||
		!reflect.DeepEqual(actors, one.Actors)
}

// shownRequest is the request as it was shown, in the parts that records have.
func shownRequest(shown jsontext.Value) (*record.Request, error) {
	r := &record.Request{}
	if err := json.Unmarshal(shown, r); err != nil {
		return nil, fmt.Errorf("the request of an approval cannot be read: %w", err)
	}
	return r, nil
}
