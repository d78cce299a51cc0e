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
// bounded size, the boolean true, and no obligations. [Decision.Err] says what
// was wrong, for the log. Nobody has to look at it to be safe.
//
// # The calls
//
//	Evaluate        POST /access/v1/evaluation           one question
//	EvaluateBatch   POST /access/v1/evaluations          many, an answer each
//	SearchSubjects  POST /access/v1/search/subject       who may do this?
//	SearchResources POST /access/v1/search/resource      to what may they do it?
//	SearchActions   POST /access/v1/search/action        what may they do to it?
//	Authorize       POST /v1/authorize                   one question, native shape
//	Discover        GET  /.well-known/authzen-configuration
//
//	Enforce, EnforceNative, EnforceBatch, EnforceSubjects, EnforceResources,
//	EnforceActions  the same questions, and what the answers oblige to is done
//
//	EnforceWithApproval, Resume, Cancel
//	                one question, and people are asked where they must approve
//
// Searches are iterators over all pages and end at the first error. Without
// [Client.Discover] the paths are the ones above, below /tenants/NAME for a
// client of another tenant than default. With it they are what the PDP says,
// as long as it says so of itself and of its own origin.
//
// # What it does not do
//
// It follows no redirect: a decision that was moved is not a decision. It sends
// credentials to the origin of its base URL and nowhere else, and puts them
// into no error. It repeats a question only where that can change nothing
// ([WithRetries]), and stops asking a PDP that does not answer ([WithBreaker]).
//
// # Obligations
//
// An answer can be "yes, if you also do this", or "no, and do this". To the
// calls that only ask, an allow with obligations is a deny. [Client.Enforce]
// takes a handler for each type that the PEP can do
// ([policy-service/obligations.Handlers]), declares those types to the PDP, does
// what the answer obliges to, and permits only where all of it was done. What
// has no handler, fails, panics, or cannot be read denies, and keeps none of the
// others from being done. Write new PEPs with Enforce, also those that have no
// handlers yet.
//
// What became of them is reported to the PDP that the answer came from, where it names its
// decisions (X-Decision-Id): POST /v1/decisions/{id}/obligations at the base URL, with the
// id of each obligation, whether it was discharged, and which kind of thing went wrong;
// never with a text of a handler's. Other PDPs do not know the path; they are asked once,
// and left alone for a while. No receipt changes an outcome, whatever becomes of it.
//
// # Approvals
//
// A deny can say that an approval is all that is missing, by AuthZEN's Access Request and
// Approval Profile. [Client.EnforceWithApproval] then asks for one, waits, and asks the PDP
// again with what people approved; that answer alone can permit. The wait is a [Handle],
// which another process can go on with. URLs that the PDP names for this are used at its
// own origin, and at those of [WithEndpointOrigin], which get no credentials.
package authzenclient
