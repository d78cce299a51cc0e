package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
)

// Decisions counts decisions, their obligations, and the capabilities that their requests showed. The difference of the
// obligations that are owed and those that are reported is what no PEP discharged.
type Decisions struct {
	tenants      tenantNames
	decided      Tally[outcome]
	policyErrors Tally[evaluation.ErrorKind]
	owed         Tally[string]
	reported     Tally[discharge]
	shown        Tally[capability.Code]
	observed     Tally[string]
}

type (
	// outcome is a decision, its tenant and its reason.
	outcome struct {
		tenant, reason string
		allow          bool
	}
	// discharge is the outcome of an obligation.
	discharge struct {
		obligation string
		status     evaluation.ReceiptStatus
	}
)

// The words for the reason of a decision that has none itself: policies determined it, no policy
// did, or, in a batch, the item was no request.
const (
	byPolicy    = "policy"
	byNoPolicy  = "no_policy"
	byMalformed = "malformed"
)

func (d *Decisions) make(i *instruments) {
	i.tally("policy_service.decisions", "{decision}",
		"Decisions answered, by answer, tenant and reason; no_policy is a deny that no policy determined.", d.decided.observe)
	d.decided.series.attributes = func(o outcome) []attribute.KeyValue {
		decision := "deny"
		if o.allow {
			decision = "allow"
		}
		return []attribute.KeyValue{
			attribute.String("decision", decision),
			attribute.String("tenant", o.tenant),
			attribute.String("reason", o.reason),
		}
	}
	i.tally("policy_service.policy.errors", "{error}",
		"Policies that could not be evaluated, by kind of error.", d.policyErrors.observe)
	d.policyErrors.series.attributes = named[evaluation.ErrorKind]("kind")
	d.policyErrors.begin(evaluation.MissingAttribute, evaluation.WrongType, evaluation.Overflow,
		evaluation.ParseFailure, evaluation.UnusableValue, evaluation.OtherError)
	i.tally("policy_service.obligations.owed", "{obligation}",
		"Obligations in answers to evaluations, by type.", d.owed.observe)
	d.owed.series.attributes = named[string]("type")
	d.owed.begin(obligations.Types()...)
	i.tally("policy_service.obligations.reported", "{obligation}",
		"Obligations of which a PEP said what became of them, by type and status.", d.reported.observe)
	d.reported.series.attributes = func(r discharge) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("type", r.obligation),
			attribute.String("status", string(r.status)),
		}
	}
	for _, t := range obligations.Types() {
		d.reported.begin(discharge{t, evaluation.Discharged}, discharge{t, evaluation.NotDischarged})
	}
	i.tally("policy_service.capabilities.uses", "{call}",
		"Calls that showed a capability, by why it did not count; used is a call that was allowed with it.", d.shown.observe)
	d.shown.series.attributes = named[capability.Code]("outcome")
	i.tally("policy_service.capabilities.observed", "{call}",
		"Calls that were allowed without a capability, and for which capability: required would have refused them.", d.observed.observe)
	d.observed.series.attributes = named[string]("tenant")
	d.observed.begin(otherTenants)
	d.shown.begin(append(capability.Codes(), used, otherCode)...)
}

// The outcomes of a capability besides the codes of refusals: a call was allowed with it; and a program that embeds the
// service, and has capabilities of its own, gave a reason that is none of the codes.
const (
	used      capability.Code = "used"
	otherCode capability.Code = "other"
)

// Answered counts a decision that was answered, and its obligations. The results of a search are
// not counted: their obligations are on no record, and cannot be reported.
func (d *Decisions) Answered(tenant string, one *evaluation.Decision) {
	d.decided.Count(outcome{d.tenants.name(tenant), determinedBy(one), one.Allow})
	for _, e := range one.Errors {
		d.policyErrors.Count(e.Kind)
	}
	for _, o := range one.Obligations {
		d.owed.Count(o.Type)
	}
	if outcome := outcomeOf(one.Capability); outcome != "" {
		d.shown.Count(outcome)
	}
}

// Observed counts a call that was allowed, and that needs a capability where capability: observe says required.
func (d *Decisions) Observed(tenant string) { d.observed.Count(d.tenants.name(tenant)) }

// outcomeOf is what came of the capability that a request showed, "" if it showed none, or nothing was to come of it.
func outcomeOf(c *evaluation.CapabilityAnswer) capability.Code {
	switch {
	case c == nil || c.Enforceable != nil:
		return ""
	case c.Reason != "" && !capability.Code(c.Reason).Known():
		return otherCode
	case c.Reason != "":
		return capability.Code(c.Reason)
	case c.ID != "":
		return used
	}
	return "" // it is what to ask for
}

// Reported counts an obligation whose receipt came.
func (d *Decisions) Reported(obligation string, status evaluation.ReceiptStatus) {
	d.reported.Count(discharge{obligation, status})
}

func determinedBy(d *evaluation.Decision) string {
	switch {
	case d.Malformed != nil:
		return byMalformed
	case d.Reason != "":
		return string(d.Reason)
	case len(d.Determining) > 0:
		return byPolicy
	}
	return byNoPolicy
}
