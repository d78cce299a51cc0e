package authzenclient

import (
	"context"
	"iter"
	"slices"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Enforce sends one request as [Client.Evaluate] does, discharges the
// obligations of the answer, and is all of a policy enforcement point:
//
//	e := client.Enforce(ctx, request, handlers)
//	if !e.Permitted() {
//		log.Print(e)
//		return errForbidden
//	}
//
// It declares the types of the handlers to the PDP (context.supported_obligations)
// in place of any that the request declares: a PDP must not rely on an obligation without a
// handler. The obligations of a deny are discharged as well, and so are those that
// can be read in an answer that is odd for another reason; neither permits.
//
// The client's timeout is for the request only; the handlers have all the time
// that ctx gives, and [obligations.Within] bounds one of them.
//
// Then it reports to the PDP whether the obligations were discharged, unless
// [WithoutReceipts] is given. That takes two seconds at most, also where ctx has ended, and changes
// nothing about e; [Enforcement.ReceiptErr] says whether it went well.
//
// It is [Client.Decide], [Undischarged.Discharge] and [Client.Report], one after the other.
func (c *Client) Enforce(
	ctx context.Context, request evaluation.Request, handlers obligations.Handlers, options ...AskOption,
) Enforcement {
	e := c.Decide(ctx, request, handlers.Types(), options...).Discharge(ctx, handlers)
	c.Report(ctx, &e)
	return e
}

// EnforceBatch asks as [Client.EvaluateBatch] does, and discharges item after
// item, each for itself. A semantic ends a batch by the PDP's decisions: an
// item that was enough for it can still be a deny here.
func (c *Client) EnforceBatch(ctx context.Context, semantic evaluation.Semantic, handlers obligations.Handlers, requests ...evaluation.Request) []Enforcement {
	all := make([]Enforcement, len(requests))
	for n, u := range c.DecideBatch(ctx, semantic, handlers.Types(), requests...) {
		all[n] = u.Discharge(ctx, handlers)
	}
	c.report(ctx, all)
	return all
}

// EnforceSubjects is [Client.SearchSubjects] of results that may oblige to
// something. It is done when the loop comes to the result, once for all results of a page that have it, and a result whose
// obligations cannot be discharged is left out; the others are yielded.
func (c *Client) EnforceSubjects(ctx context.Context, request evaluation.Request, handlers obligations.Handlers) iter.Seq2[Result, error] {
	return c.enforceSearch(ctx, sought{what: subject}, request, handlers)
}

// EnforceResources is to SearchResources what EnforceSubjects is to SearchSubjects.
func (c *Client) EnforceResources(ctx context.Context, request evaluation.Request, handlers obligations.Handlers) iter.Seq2[Result, error] {
	return c.enforceSearch(ctx, sought{what: resource}, request, handlers)
}

// EnforceActions is to SearchActions what EnforceSubjects is to SearchSubjects.
func (c *Client) EnforceActions(ctx context.Context, request evaluation.Request, handlers obligations.Handlers) iter.Seq2[Result, error] {
	return c.enforceSearch(ctx, sought{what: action}, request, handlers)
}

func (c *Client) enforceSearch(ctx context.Context, s sought, q evaluation.Request, handlers obligations.Handlers) iter.Seq2[Result, error] {
	s.keep = func(ctx context.Context, d Decision, done map[string]obligations.Outcome) bool {
		if d.permit {
			return true
		}
		kept, owed := true, d.obligations
		if d.october { // an id is executed once a response
			owed = slices.DeleteFunc(slices.Clone(owed), func(o evaluation.Obligation) bool {
				outcome, has := done[o.ID]
				kept = kept && (!has || outcome.Status == obligations.Discharged)
				return has
			})
		}
		d.obligations = owed
		e := Undischarged{decision: d}.Discharge(ctx, handlers)
		for _, outcome := range e.report.Outcomes() {
			done[outcome.ID] = outcome
		}
		return kept && e.Permitted()
	}
	q, err := c.declare(q, handlers.Types())
	if err != nil {
		err.Op = "search"
		return func(yield func(Result, error) bool) { yield(Result{}, err) }
	}
	return c.search(ctx, s, q)
}
