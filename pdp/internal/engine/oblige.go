package engine

import (
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// oblige determines the obligations of a decision. It denies if they cannot be determined. It
// never turns a deny into an allow.
func oblige(v *bundle.View, q *Question, d *evaluation.Decision) {
	var owed []obligations.Owed
	for _, id := range d.Determining {
		for _, o := range v.ByID[id].Obliges {
			owed = append(owed, obligations.Owed{Definition: o, Policy: id})
		}
	}
	if len(owed) == 0 {
		return
	}
	applyObligations(d, obligations.Resolve(d.Allow, owed, q.variable))
}

// applyObligations gives a decision its obligations. It denies if they contradict each other,
// or if one cannot be filled in.
func applyObligations(d *evaluation.Decision, out obligations.Resolution) {
	d.Obligations, d.LeftOut = out.Obligations, out.LeftOut
	switch {
	case !d.Allow:
	case out.Conflict:
		d.Deny(evaluation.ObligationConflict)
	case out.Unfilled:
		d.Deny(evaluation.ObligationUnfilled)
	}
}

// denyUnaskable denies if an approval is owed and the request names an actor that nobody can tell:
// people would be asked to decide about a request of which they, or an agent of theirs, may be part.
func (in *Inquiry) denyUnaskable(d *evaluation.Decision) {
	if !d.Allow || !slices.ContainsFunc(d.Obligations, owesApproval) {
		return
	}
	if at := in.unknownActor(); at != "" {
		missing := obligations.Missing(d.Obligations, in.declared())
		d.Deny(evaluation.ApprovalRequired)
		d.Required = missing
		d.Refused = &evaluation.Mismatch{Pointer: at, Place: at, Detail: "nobody can tell who that is, so nobody can be asked for the approval; say an id, or {type, id} of a type that there can be"}
	}
}

func owesApproval(o evaluation.Obligation) bool { return o.Type == obligations.ApprovalRequired }

// denyUndeclared denies if the PEP has not declared an obligation that is owed.
func (in *Inquiry) denyUndeclared(d *evaluation.Decision) {
	if !d.Allow || len(d.Obligations) == 0 || in.Bundle.Config.AllowUndeclared {
		return
	}
	missing := obligations.Missing(d.Obligations, in.declared())
	if len(missing) == 0 {
		return
	}
	reason := evaluation.ObligationUnsupported
	if slices.Contains(missing, obligations.ApprovalRequired) {
		reason = evaluation.ApprovalRequired
	}
	d.Deny(reason)
	d.Required = missing
}

// supportedMember is the member of the context in which the PEP declares types of obligations.
const supportedMember = "supported_obligations"

// declared returns a function that reports whether the PEP declared a type of obligation. A PEP
// declares types in its registration, in the request, or in both. If it does so in both, only
// the types in both count. The native contract by itself declares approval_required.
func (in *Inquiry) declared() func(string) bool {
	sent, inRequest := in.Request.Context.Get(supportedMember)
	asker, shape := in.Asker, in.Request.Shape
	return func(typ string) bool {
		if shape == evaluation.Native && typ == obligations.ApprovalRequired {
			return true
		}
		requested := !inRequest && asker.Registered
		for _, v := range sent.Elements {
			requested = requested || v.Text() == typ
		}
		return requested && (!asker.Registered || slices.Contains(asker.Obligations, typ))
	}
}

// variable returns the value of a variable in a template.
func (q *Question) variable(name string) (string, bool) {
	switch name {
	case "principal.id":
		return string(q.Uids[bundle.PrincipalVar].ID), true
	case "resource.id":
		return string(q.Uids[bundle.ResourceVar].ID), true
	case "action.name":
		return string(q.Uids[bundle.ActionVar].ID), true
	}
	path, ok := obligations.Path(name)
	if !ok {
		return "", false
	}
	text, ok := textAt(q.Context, path)
	if ok && (obligations.Secret(path) || q.masked != nil && q.masked(path)) {
		text = obligations.Masked
	}
	return text, ok
}

// textAt returns what a text has for the value at a path, if it has anything for such a value.
func textAt(in types.Record, path []string) (string, bool) {
	value, _ := valueIn(path, in, types.EntityMap{})
	switch v := value.(type) {
	case types.String:
		return string(v), true
	case types.Long:
		return strconv.FormatInt(int64(v), 10), true
	case types.Boolean:
		return strconv.FormatBool(bool(v)), true
	case types.Decimal:
		return v.String(), true
	}
	return "", false
}

// obligesAllow reports whether an allow would depend on an obligation of the policy.
func obligesAllow(p *bundle.Policy) bool {
	return !p.Forbids() && len(p.Obliges) > 0
}
