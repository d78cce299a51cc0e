// Package approvals serves approval requests: to the people who decide about them, and to the programs that ask.
// Start with [Approvals.Routes], which has the needs of each route.
//
// People list the approval requests that they may decide about, read the reasons, and approve, deny, delegate or revoke;
// operators redact (people.go). Clients of MCP get the same in messages of JSON-RPC (mcp.go). Programs ask for an approval
// after a denial, and follow their tasks, by AuthZEN's profile for access requests (access.go). A request of either may
// wait until there is an answer (waiting.go). Errors become problems in one place (admit.go).
//
// The package refuses to decide anything: package broker decides which callers see an approval request, and which votes
// count. It knows no other parts of the server than the door, and the callers of package auth.
package approvals

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// Options are the parts of Approvals.
type Options struct {
	Door *door.Door
	// Broker is nil if no decisions are recorded; then each route says so. It is set before the first request comes.
	Broker *broker.Broker
}

// Approvals are the routes of approval requests. Make them with [New].
type Approvals struct {
	Options
	waiting *waiting
	offered offered
}

// New makes Approvals.
func New(o Options) *Approvals {
	return &Approvals{Options: o, waiting: newWaiting(o.Door.Options.Load.RequestTime)}
}

// Stop answers the requests that wait.
func (a *Approvals) Stop() { a.waiting.end() }

// Routes registers the routes.
func (a *Approvals) Routes(route func(path string, handle echo.HandlerFunc, methods ...string)) {
	get := func(path string, need door.Need, handle handler) { route(path, a.admit(need, handle), http.MethodGet) }
	post := func(path string, need door.Need, handle handler) { route(path, a.admit(need, handle), http.MethodPost) }

	follows := door.Need{Permission: auth.Request, Tenant: true}
	cancels, submits := follows, follows
	cancels.Body, cancels.Work = door.OptionalJSON, door.ShortWork
	submits.Body, submits.Work, submits.Records = door.JSON, door.WorkBySize, true
	lists := follows
	lists.Parameters = taskParameters
	looks := follows
	looks.Parameters = []string{"wait"} // another one would make another question of an equal one
	keeps := door.Need{Permission: auth.Decide, Tenant: true, Parameters: door.NoParameters, Work: door.ShortWork}
	puts := keeps
	puts.Body = door.JSON
	tells := door.Need{Permission: auth.Approve, Tenant: true, Parameters: []string{"after", "limit"}, Relayed: evaluation.ViaForm}
	for _, prefix := range []string{"", door.TenantPrefix} {
		get(prefix+notificationsPath, tells, a.notifications)
		post(prefix+broker.RequestsPath, submits, a.submit)
		get(prefix+broker.RequestsPath, lists, a.tasks)
		get(prefix+broker.RequestsPath+"/:id", looks, a.taskStatus)
		post(prefix+broker.RequestsPath+"/:id/cancel", cancels, a.cancelTask)
		get(prefix+toolRequestsPath, keeps, a.openToolRequests)
		get(prefix+toolRequestsPath+"/:id", keeps, a.seeToolRequest)
		post(prefix+toolRequestsPath+"/:id", puts, a.keepToolRequest)
	}

	const one = "/v1/approvals/:id"
	decides := door.Need{Permission: auth.Approve, Body: door.OptionalJSON, Work: door.ShortWork}
	withdraws := decides
	withdraws.Permission = "" // any caller that sees the approval request; the broker knows which one asked
	// A gateway brings answers from forms that it showed to persons. A console shows them approval requests, and takes their
	// rulings.
	inConsole, byForm := decides, decides
	inConsole.Relayed, byForm.Relayed = evaluation.ViaConsole, evaluation.ViaForm
	get("/v1/approvals", door.Need{
		Permission: auth.Approve,
		Parameters: inboxParameters,
		Relayed:    evaluation.ViaConsole,
	}, a.inbox)
	get(one, door.Need{Parameters: []string{"wait"}, Relayed: evaluation.ViaConsole}, a.status)
	reads := door.Need{Parameters: door.NoParameters, Relayed: evaluation.ViaConsole, Work: door.ShortWork}
	get(one+"/why", reads, a.see(a.why))
	get(one+"/previous", reads, a.see(a.previous))
	searches := reads
	searches.Work = door.NoWork // it takes turns with pages
	get(one+"/deciders", searches, a.see(a.deciders))
	post(one+"/decision", inConsole, a.ruling(evaluation.DecodeRuling, (*broker.Seen).Decide))
	get(one+"/elicitation", door.Need{Parameters: []string{"form"}, Relayed: evaluation.ViaForm}, a.see(a.asks(a.elicitation)))
	get(one+"/authorization-request", door.Need{Parameters: []string{"call"}}, a.see(a.authorizationRequest))
	get(one+"/authorization-notification", door.Need{Parameters: door.NoParameters, Relayed: evaluation.ViaForm}, a.see(a.asks(a.notification)))
	post(one+"/response", byForm, a.see(a.respond))
	post(one+"/revoke", inConsole, a.ruling(evaluation.DecodeWithdrawal, (*broker.Seen).Revoke))
	post(one+"/cancel", withdraws, a.ruling(evaluation.DecodeWithdrawal, (*broker.Seen).Cancel))
	post(one+"/redaction", door.Need{Permission: auth.LogAdmin, Parameters: door.NoParameters, Body: door.JSON}, a.redaction)
}

// write answers with a value as JSON.
func write(c echo.Context, v any) error { return answerOf(v, true).write(c, http.StatusOK) }

// Counts are numbers for tests.
type Counts struct {
	// Waiting are the requests that have a place to wait, and Joined those of them that have a watch. Questions is how many
	// watches there are.
	Waiting, Joined, Questions int
	// Looks is how often a watch looked, and Pages how many pages were begun.
	Looks, Pages int64
}

// Counts counts.
func (a *Approvals) Counts() Counts {
	w := a.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Counts{Waiting: w.all, Questions: len(w.watches), Looks: w.looks.Load(), Pages: w.made.Load()}
	for _, one := range w.watches {
		c.Joined += len(one.waiters)
	}
	return c
}
