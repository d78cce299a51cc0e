// Package authzenclient asks an AuthZEN policy decision point (PDP) and fails
// closed: whatever goes wrong reads as a deny. Start with [New] and
// [Client.Evaluate]. A policy enforcement point is five lines:
//
//	client, err := authzenclient.New("https://pdp.example.com", authzenclient.WithKey(key))
//	…
//	if !client.Evaluate(r.Context(), request).Permitted() {
//		http.Error(w, "Forbidden", http.StatusForbidden)
//		return
//	}
//
// There is no error to forget. [Decision] has no exported field and its zero
// value is a deny; [Decision.Permitted] is true only for an answer with status
// 200, type application/json, a body that is one unambiguous JSON object of
// bounded size, the boolean true, and no obligations. [Decision.Err] is the
// error, for the log. A PEP is safe without looking at it.
//
// # The calls
//
//	Evaluate        POST /access/v1/evaluation           one request
//	EvaluateBatch   POST /access/v1/evaluations          a batch, an answer for each item
//	SearchSubjects  POST /access/v1/search/subject       who may do this?
//	SearchResources POST /access/v1/search/resource      to what may they do it?
//	SearchActions   POST /access/v1/search/action        what may they do to it?
//	Discover        GET  /.well-known/authzen-configuration
//
//	Enforce, EnforceBatch, EnforceSubjects, EnforceResources, EnforceActions
//	                the same requests, and the obligations of the answers are discharged
//
//	Decide, DecideBatch, Discharge, DischargeAll, Report, ReportAll
//	                the same, and the PEP does something between these steps
//
//	Present, Continue
//	                one request with an approval, and the next round of a call that has one
//
// Searches are iterators over all pages and end at the first error. Without
// [Client.Discover] the paths are the ones above, below /tenants/NAME for a
// client of another tenant than default. With it they are the PDP's,
// as long as it says so of itself and of its own origin.
//
// # Limits
//
// It follows no redirect: a decision that was moved is not a decision. It sends
// credentials to the origin of its base URL and nowhere else, and puts them
// into no error. It repeats a request only if that can change nothing
// ([WithRetries]), and stops asking a PDP that does not answer ([WithBreaker]).
//
// # Obligations
//
// An answer can be "allow, if you also do this", or "deny, and do this". To the
// calls that only ask, an allow with obligations is a deny. [Client.Enforce]
// takes a handler for each type that the PEP can discharge
// ([policy-service/obligations.Handlers]), declares those types to the PDP,
// discharges the obligations of the answer, and permits only if all of them are
// discharged. An obligation that has no handler, fails, panics, or cannot be
// read denies, and keeps no other obligation from being discharged. Write new
// PEPs with Enforce, also those that have no handlers yet.
//
// Enforce is three steps. A gateway takes them one by one: [Client.Decide] gives an
// [Undischarged], which cannot permit, [Undischarged.Discharge] an [Enforcement], which can, and
// [Client.Report] comes when it is certain that the handlers' promises were kept.
//
// The client reports receipts to the PDP that the answer came from, if that PDP names its
// decisions (X-Decision-Id): POST /v1/decisions/{id}/obligations at the base URL, with the
// id of each obligation, whether it was discharged, and which kind of thing went wrong;
// never with a text of a handler's. Other PDPs do not know the path; they are asked once,
// and left alone for a while. No receipt changes an outcome, whatever becomes of it.
//
// # Capabilities
//
// An agent that holds a capability shows it with a question about a call, by the option [WithCapability] of Evaluate,
// Decide, Enforce, Present and Continue. Package approvals asks for one, and waits if people have to approve it. A gateway
// that checks them by itself, by package capability, has the service's keys from [Client.Keys].
//
// # Approvals
//
// A deny can offer an approval request, by AuthZEN's Access Request and Approval Profile.
// Package approvals files it, waits for people, and asks the PDP again with their approval.
package authzenclient
