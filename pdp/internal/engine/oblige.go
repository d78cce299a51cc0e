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

// Draft returns the draft by which the request is read: July's or October's.
func (in *Inquiry) Draft() evaluation.Draft {
	r := &in.Request
	byBundle := r.Draft == evaluation.BundlesDraft && r.Shape == evaluation.AuthZEN
	if r.Draft == evaluation.October || byBundle && in.Bundle.Config.October {
		return evaluation.October
	}
	return evaluation.July
}

// adopts reports whether the PEP adopts October's draft. A caller that forwards requests enforces none of them.
func (in *Inquiry) adopts() bool { return evaluation.Adopts(in.Request.Context) && !in.Asker.Forwards }

// allowsUndeclared reports whether an allow may come with obligations that the PEP has not declared.
func (in *Inquiry) allowsUndeclared() bool {
	return in.Bundle.Config.AllowUndeclared && in.Draft() != evaluation.October
}

// denyUndeclared denies if the PEP has not declared an obligation that is owed. By October's draft, a deny leaves out what is
// not declared.
func (in *Inquiry) denyUndeclared(d *evaluation.Decision) {
	if len(d.Obligations) == 0 || in.allowsUndeclared() || !d.Allow && d.Draft != evaluation.October {
		return
	}
	declared := in.declared()
	if !d.Allow {
		all := d.Obligations
		d.Obligations, d.LeftOut = nil, slices.Clone(d.LeftOut)
		for _, o := range all {
			if declared(o.Type) {
				d.Obligations = append(d.Obligations, o)
			} else {
				d.LeftOut = append(d.LeftOut, evaluation.LeftOut{ID: o.ID, Reason: evaluation.ObligationUnsupported})
			}
		}
		return
	}
	missing := obligations.Missing(d.Obligations, declared)
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

// declared returns a function that reports whether the PEP declared a type of obligation. A PEP
// declares types in its registration, in the request, or in both. If it does so in both, only
// the types in both count. The native contract by itself declares approval_required.
//
// By October's draft a PEP declares types in requests that adopt it, by the draft's names, and a registration can only leave
// some out. Who declares custom declares approval_required only by that name besides, and only while the PDP advertises it: a
// PEP that waits for people must be denied, so that it can request the approval.
func (in *Inquiry) declared() func(string) bool {
	sent, inRequest := in.Request.Context.Get(evaluation.SupportedMember)
	asker, shape, draft, adopts := in.Asker, in.Request.Shape, in.Draft(), in.adopts()
	october := draft == evaluation.October
	return func(typ string) bool {
		switch asks := typ == obligations.ApprovalRequired; {
		case october && !adopts:
			return false
		case asks && shape == evaluation.Native:
			return true
		case asks && october && (in.Bundle.Config.October || !listed(sent, typ)):
			return false
		}
		requested := !inRequest && asker.Registered && !october || listed(sent, draft.Type(typ))
		return requested && (!asker.Registered || slices.Contains(asker.Obligations, typ))
	}
}

// listed reports whether a type is among the declared ones.
func listed(sent evaluation.Value, typ string) bool {
	for _, v := range sent.Elements {
		if v.Text() == typ {
			return true
		}
	}
	return false
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
