// Package audit serves the decision log: to auditors, who read it and prove with it, to operators, who rotate its key
// and redact records, and to PEPs, who report what became of their obligations, and of tools. Start with [Audit.Routes].
//
// An auditor sees only the records of some tenants. The type auditor is a request together with what its caller sees,
// and every handler but those for PEPs is given it. A record of another tenant gets the same answer as a record that does not
// exist.
//
// Reading shares the processors with decisions, so it is bounded twice. [Audit.Reading] limits how many requests work
// on the log at once, and they take turns (reading.go). [Audit.Exports] are the places of requests that read the whole
// log, which may last as long as their credential and write no faster than their reader takes it (exports.go).
//
// The package refuses to decide and to know why something was decided: it imports no PDP and no approvals. It changes
// nothing in the log but by the log's own functions, and a receipt changes no decision. What may be shown of a text is
// for the masker that its [Options] name.
package audit

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/keyedmutex"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// Options are what an Audit works with.
type Options struct {
	Door *door.Door
	// Log and Bundles are nil if no decision log is kept; then each route says so. They are set before the first
	// request comes.
	Log     *decisionlog.Log
	Bundles *segment.Bundles
	Data    string // the data directory of the log
	Mode    decisionlog.Mode
	Tiles   Tiles
	// Cosigned is the checkpoint to be shown by the rules of the witnesses; nil without witnesses.
	Cosigned func() (segment.Checkpoint, error)
	// Mask is the masker of the request that a context belongs to.
	Mask func(context.Context) *mask.Masker
	// InForce says which bundle answers.
	InForce func() InForce
	// Explain explains a recorded decision by the policies of then: see [Audit.explain].
	Explain Explain
	// Backup makes a backup of all that the server keeps.
	Backup backUp
	// Witnessed is set if nothing is answered without a quorum of witnesses.
	Witnessed bool
	// Reported counts an obligation whose receipt came.
	Reported func(obligation string, status evaluation.ReceiptStatus)
}

// Audit is the routes of the decision log. Make it with [New].
type Audit struct {
	Options
	// Reading limits how many requests work on what is read of the log at once.
	Reading door.Gate
	// Strangers limits how many requests of strangers do.
	Strangers door.Gate
	// Exports limits how many requests read the whole log at once.
	Exports door.Places

	stopping  context.Context // ends with Stop
	stop      context.CancelFunc
	reporting keyedmutex.Mutex // of PEPs that report on a decision
}

// New makes an Audit.
func New(o Options) *Audit {
	a := &Audit{
		Options:   o,
		Reading:   door.Gate{Limit: mostReading(), Queue: door.LongQueue},
		Strangers: door.Gate{Limit: 1, Queue: door.LongQueue},
		Exports: door.Places{Gate: door.Gate{
			Limit: MostExports,
			Share: ExportsOfOne,
			Queue: door.LongQueue,
		}},
	}
	a.stopping, a.stop = context.WithCancel(context.Background())
	return a
}

// Stop ends the requests that read the whole log. A slow reader must not delay the stop of the server, and an
// export can be continued.
func (a *Audit) Stop() { a.stop() }

// Routes registers the routes.
func (a *Audit) Routes(route func(path string, handle echo.HandlerFunc, methods ...string)) {
	get := func(path string, handle handler, parameters ...string) {
		need := door.Need{Permission: auth.LogRead, Parameters: append(door.NoParameters, parameters...)}
		route(path, a.admit(need, handle), http.MethodGet)
	}
	post := func(path string, need door.Need, handle handler) {
		if need.Parameters == nil {
			need.Parameters = door.NoParameters
		}
		route(path, a.admit(need, handle), http.MethodPost)
	}
	const one = "/v1/decisions/:id"
	route(one+"/obligations", a.receipts, http.MethodPost)
	for _, prefix := range []string{"", door.TenantPrefix} {
		route(prefix+"/v1/tools/drift", a.toolDrift, http.MethodPost)
	}
	get("/v1/decisions", a.decisionsPage, pageParameters...)
	get(one, a.ofRecord(a.decisionRecord))
	get(one+"/proof", a.ofRecord(a.decisionProof))
	explains := door.Need{Permission: auth.LogRead, Also: auth.Explain, Parameters: door.NoParameters}
	route(one+"/explain", a.admit(explains, a.ofRecord(a.explain)), http.MethodGet)
	post(one+"/redaction", door.Need{Permission: auth.LogAdmin, Body: door.JSON}, a.redaction)
	get("/v1/log/records/:id/proof", a.recordProof)
	a.treeRoutes(route)
	get("/v1/log/keys", a.logKeys)
	post("/v1/log/keys", door.Need{
		Permission: auth.LogAdmin,
		Parameters: []string{anyway},
		// The key signs for all tenants.
		AllTenants: "this needs the permission log.admin on all tenants; ask the operator for a credential that has it",
	}, a.rotateLogKey)
	post("/v1/log/consistency", door.Need{Permission: auth.LogRead, Body: door.AnyBody}, a.logConsistency)
	get("/v1/log/stats", a.once(logStats))
	get("/v1/log/report", a.once(logReport), append([]string{"by", "top", "decision"}, spanNames...)...)
	get("/v1/log/sample", a.once(logSample), append([]string{"n", "seed"}, spanNames...)...)
	get("/v1/log/export", a.logExport, exportParameters...)
	route("/v1/backup", a.admit(needsBackup, a.logBackup), http.MethodGet)
	get("/v1/bundles", a.inForce)
	get("/v1/bundles/:digest", a.logBundle)
}
