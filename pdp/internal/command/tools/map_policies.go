package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/gateway"
	"policy-service/pdp/internal/mcp"
)

// decide takes the verdicts of a bundle, which is asked in this process. Nothing goes on record.
func (o *mapJSON) decide(bundle *pdp.Bundle, x mcp.Explanation) error {
	j := judge{pdp: pdp.Of(bundle, pdp.Options{Approvals: noApprovals{}}), tenant: x.Tenant, positions: map[string]string{}}
	for _, p := range bundle.Policies() {
		j.positions[p.ID] = p.Position
	}
	for n, q := range x.Questions {
		calls, decisions, err := j.decide(q)
		if err != nil {
			return err
		}
		all := make([]verdictJSON, len(decisions))
		for i, d := range decisions {
			all[i] = j.verdict(d)
		}
		i := o.decided(n, all)
		if i < 0 || all[i].Reason != string(evaluation.ApprovalRequired) {
			continue
		}
		if o.Missing, err = j.missing(calls[i], q.Whole); err != nil {
			return err
		}
	}
	return nil
}

// judge decides in this process, as a PDP does that the gateway asks.
type judge struct {
	pdp       *pdp.PDP
	tenant    string
	positions map[string]string
}

// caller is the gateway, as a PDP in its process knows it.
var caller = evaluation.Asker{Name: gateway.CallerName, Relays: true}

// decide asks for explanations because of the names that are near: only then are they suggested.
func (j judge) decide(q mcp.Question) ([]pdp.Call, []evaluation.Decision, error) {
	limits := evaluation.DefaultLimits()
	if q.API == coaz.Evaluation {
		request, err := evaluation.DecodeAuthZEN(q.Body, j.tenant, limits)
		if err != nil {
			return nil, nil, undecided(err, j.tenant)
		}
		call := pdp.Call{Request: request, Asker: caller, Explain: true}
		d, err := j.pdp.Evaluate(context.Background(), call)
		return []pdp.Call{call}, []evaluation.Decision{d}, undecided(err, j.tenant)
	}
	batch, err := evaluation.DecodeBatch(q.Body, j.tenant, limits)
	if err != nil {
		return nil, nil, undecided(err, j.tenant)
	}
	calls := make([]pdp.Call, len(batch.Items))
	for n, item := range batch.Items {
		calls[n] = pdp.Call{Request: item.Request, Asker: caller}
	}
	d, err := j.pdp.EvaluateBatch(context.Background(), pdp.BatchCall{Batch: batch, Asker: caller, Explain: true})
	return calls, d.Items, undecided(err, j.tenant)
}

func undecided(err error, tenant string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pdp.ErrUnknownTenant):
		return fmt.Errorf("the bundle has no tenant %q; try another --policies, or pdp.tenant in the configuration", tenant)
	}
	return fmt.Errorf("the PDP does not take the question: %w; mend the message or the mapping", err)
}

func (j judge) verdict(d evaluation.Decision) verdictJSON {
	v := verdictJSON{
		Decision: d.Allow, Reason: string(d.Reason), ReasonUser: d.ReasonUser, Determining: d.Determining, Overruled: d.Overruled, Errors: d.Errors,
		Mismatch: d.Mismatch, Obligations: d.Obligations, Required: d.Required, Bundle: d.Bundle, Positions: map[string]string{},
	}
	if !d.Allow && d.Reason == "" && len(d.Determining) == 0 {
		v.Reason = "no permit applies"
	}
	for _, id := range slices.Concat(d.Determining, d.Overruled) {
		if at := j.positions[id]; at != "" {
			v.Positions[id] = at
		}
	}
	return v
}

// missing is the approval that a call waits for. People approve whole calls, in the gateway's own words.
func (j judge) missing(call pdp.Call, whole bool) (*approvalJSON, error) {
	a, ok, err := j.pdp.Requestable(context.Background(), call)
	if err != nil {
		return nil, undecided(err, j.tenant)
	}
	m := &approvalJSON{Obligation: a.Obligation.ID, Policies: a.Obligation.Policies, Template: a.Terms.Template, Message: a.Terms.Message, Quorum: a.Terms.Quorum}
	switch {
	case !whole:
		m.Asked = "nobody: a mapping makes the question, or strict leaves the arguments out, and people approve whole calls in the gateway's own words"
		m.Try = "demand the approval of what the gateway asks without a mapping, strict and declared: instead"
	case ok:
		m.Asked = "whom the policies permit approval.decide by the template, but nobody who takes part, unless allow_self_approval of bundle.yaml names the template"
		for _, one := range append([]evaluation.Ref{{Type: call.Request.Subject.Type, ID: call.Request.Subject.ID}}, a.Actors.Chain...) {
			m.TakesPart = append(m.TakesPart, cli.Entity(one))
		}
	case m.Obligation == "":
		m.Asked = "nobody"
		m.Try = "see required_obligations: an approval is not all that is missing; configure obligations of the gateway, or have the obligation name a template"
	default:
		m.Asked, m.Try = "nobody", "have the entities of who acts known to the bundle"
	}
	return m, nil
}

// noApprovals keeps no approvals: none is filed, and none is found.
type noApprovals struct{}

func (noApprovals) Find(context.Context, pdp.ApprovalRequest) (pdp.Found, error) {
	return pdp.Found{}, nil
}

func (noApprovals) Reserve(context.Context, pdp.ApprovalRequest, string) (pdp.Reservation, error) {
	return nil, nil
}

func (noApprovals) File(context.Context, pdp.ApprovalRequest) (*evaluation.Approval, error) {
	return nil, nil
}

func (noApprovals) Offer(context.Context, pdp.ApprovalRequest, evaluation.Reason) (*evaluation.Access, error) {
	return nil, nil
}
