// Package ask has the PDP decide whether an MCP request may go on, how its result is redacted, and which items of a list are
// shown. It is the one place where questions are made and where refusals are written.
//
// Begin with [New]. [Asker.Tool] reads a tool's definition when it is listed; [Asker.Ask] decides about a request and gives a
// [Permit] or a [Refusal]; [Permit.Result] is the response that leaves; [Asker.Filter] is for lists.
//
// A question has one of three authors, and the first that there is counts: the operator (a mapping in the configuration), we
// or the COAZ binding (the default of the method), and the server, which declares mappings with its tools. The first two are
// trusted. A server's mapping can narrow, and never widen: its question is asked besides, and both must be permitted, unless
// [Instead] says that it is asked alone.
//
// A call that lacks nothing but a person's yes is refused with a [Wanted], by which people are asked. Their answer comes
// back as [Answered] with the same call, and is no permit: all questions are asked again, the last one with it, and the PDP
// decides. People approve nothing but a whole call, in our own words: no mapping has people asked, nor has the letter of the
// binding.
//
// The package forwards nothing and keeps nothing about anybody. There is no way from an error to a permit.
package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/coaz"
	"policy-service/obligations"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
)

// Ask is the form of the default question.
type Ask string

// The forms.
const (
	// ToolInvoke asks about tools/call by the action tool.invoke on a tool that is called server:name. The subject is, for
	// all methods, the agent for a person, or the person.
	ToolInvoke Ask = "tool.invoke"
	// ByTool asks as ToolInvoke does, but that the action about tools/call is called server:name too. A Cedar schema types the
	// context by the action, so it can list the arguments of each tool.
	ByTool Ask = "tool"
	// COAZ asks the questions of the binding, and adds the arguments to those about tools/call.
	COAZ Ask = "coaz"
)

// Declared is the weight of a mapping that a tool declares.
type Declared string

// Weights of a declared mapping.
const (
	Also    Declared = "also"    // both questions must be permitted
	Instead Declared = "instead" // it is asked alone, as the binding has it
	Ignore  Declared = "ignore"  // it is not read
)

// Errors is whose codes refusals have.
type Errors string

// The codes.
const (
	ErrorsCOAZ Errors = "coaz"
	// ErrorsSEP has -32401 for a denial, whatever dialect the tool has.
	ErrorsSEP Errors = "sep"
	// ErrorsMCPX has -32002 for a call that is denied for good, in the legacy era.
	ErrorsMCPX Errors = "mcpx"
)

// Options configure an [Asker].
type Options struct {
	// PDP has the client for each tenant, by the tenant's name.
	PDP map[string]*authzenclient.Client
	// Resource is the gateway's own resource identifier. SubjectClaim and SubjectOverride are as [coaz.Options] has them.
	Resource        string
	SubjectClaim    string
	SubjectOverride coaz.Override
	Ask             Ask // "" is ToolInvoke
	// Strict asks by the letter of the binding: nothing is added to its questions, and a method without one is denied.
	Strict   bool
	Declared Declared // "" is Also
	// Dialects are those in which tools may declare mappings. Nil is both.
	Dialects []coaz.Dialect
	Errors   Errors // "" is ErrorsCOAZ
	// DenyStatus is the HTTP status of denials, 200 or 403. 0 is 200.
	DenyStatus int
	// Properties are the claims that the subject of our own questions has as properties. Nil is roles and department_id.
	Properties []string
	// Mappings are the operator's: by method, or of one tool by "tools/call server:name".
	Mappings map[string]evaluation.Object
	// Meta names the members of _meta that go on to servers unchanged.
	Meta []string
	// Labels are the operator's for whole servers, by the server's name.
	Labels map[string]map[string]string
	// Verifiers check the capabilities that calls show, by the tenant's name. Where there is none, the PDP alone does.
	Verifiers map[string]*capability.Verifier
	// CapabilityRequired has the servers whose tools are called with a capability alone.
	CapabilityRequired map[string]bool
	// Handlers discharge obligations of the PDP, but for redact, which this package does.
	Handlers obligations.Handlers
	// Admit is called before questions are asked, with their number, and returns a refusal if they must not be asked. It may be
	// nil.
	Admit func(ctx context.Context, questions int) *Refusal
	// LetPass gets the key of a setting that lets a question be asked, and whose other value would refuse it. It may be nil.
	LetPass func(setting string)
	Logger  *slog.Logger     // nil is none
	Now     func() time.Time // nil is time.Now
}

// Inputs are the variables that an operator's mapping has besides params and token: server {name, resource, labels}, tool
// {name, labels, digest} and client {id}.
var Inputs = []string{"server", "tool", "client"}

// GatewayParams are params for the gateway alone: servers do not get them.
var GatewayParams = []string{"capability", "proof", "onBehalfOf", "requestId"}

// Asker asks. It is safe for concurrent use.
type Asker struct {
	o        Options
	binding  *coaz.Binding
	operator map[string]*coaz.Mapping // by method
	ofTools  map[string]*coaz.Mapping // by server:name
	issuers  map[*authzenclient.Client]*issuer
	away     atomic.Bool
}

// Note notes how a question ended.
func (a *Asker) Note(r *Refusal) { a.away.Store(r != nil && r.Kind == Unavailable) }

// ErrAway is that of a PDP that is away.
var ErrAway = errors.New("the PDP did not answer the last question: requests are refused")

// Away reports whether the PDP did not answer the last question that was noted.
func (a *Asker) Away() bool { return a.away.Load() }

const redact = "redact"

// New makes an Asker.
func New(o Options) (*Asker, error) {
	o.Ask, o.Declared, o.Errors = cmp.Or(o.Ask, ToolInvoke), cmp.Or(o.Declared, Also), cmp.Or(o.Errors, ErrorsCOAZ)
	o.DenyStatus, o.Logger = cmp.Or(o.DenyStatus, http.StatusOK), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Properties == nil {
		o.Properties = []string{"roles", "department_id"}
	}
	if o.Dialects == nil {
		o.Dialects = []coaz.Dialect{coaz.AuthZEN, coaz.SEP}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.LetPass == nil {
		o.LetPass = func(string) {}
	}
	if o.Admit == nil {
		o.Admit = func(context.Context, int) *Refusal { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Asker{o: o, operator: map[string]*coaz.Mapping{}, ofTools: map[string]*coaz.Mapping{}, issuers: map[*authzenclient.Client]*issuer{}}
	for _, pdp := range o.PDP {
		a.issuers[pdp] = &issuer{}
	}
	var err error
	if a.binding, err = coaz.New(coaz.Options{Resource: o.Resource, SubjectClaim: o.SubjectClaim, Override: o.SubjectOverride, Inputs: Inputs}); err != nil {
		return nil, err
	}
	for key, mapping := range o.Mappings {
		m, err := a.binding.Compile(mapping, coaz.AuthZEN)
		if err != nil {
			return nil, fmt.Errorf("the mapping for %q: %w", key, err)
		}
		if tool, ofTool := strings.CutPrefix(key, toolsCall+" "); ofTool {
			a.ofTools[tool] = m
			continue
		}
		a.operator[key] = m
	}
	return a, nil
}

func (o *Options) check() error {
	switch {
	case len(o.PDP) == 0:
		return errors.New("there is no PDP to ask")
	case o.Resource == "":
		return errors.New("the gateway's own resource identifier is not set")
	case o.Handlers[redact] != nil:
		return errors.New("redact has no handler: it is done here")
	case o.Handlers[obligations.ApprovalRequired] != nil:
		return errors.New("approval_required has no handler: the PDP files approvals, and the gateway has people asked")
	}
	for key := range o.Mappings {
		switch {
		case isTask(key):
			return fmt.Errorf("a mapping for %q: tasks are denied, whatever a mapping says", key)
		case key == toolsRequest:
			return fmt.Errorf("a mapping for %q: nobody is asked about such a mapping: a request for a tool is asked about by the action %s", key, toolRequest)
		case strings.HasPrefix(key, "capabilities/"):
			return fmt.Errorf("a mapping for %q: nobody is asked about it but the PDP that grants capabilities", key)
		case key == rpc.Respond:
			return fmt.Errorf("a mapping for %q: nobody is asked whether somebody may decide but the PDP that is told the decision", key)
		}
	}
	return nil
}

// Requests reports whether agents can request tools of others: the binding has no question for that.
func (a *Asker) Requests() bool { return !a.o.Strict && a.o.Ask != COAZ }

// Instead reports whether a mapping that a tool declares is asked alone.
func (a *Asker) Instead() bool { return a.o.Declared == Instead }

// Bundle returns the digest of the policies that decided last for the tenant of a principal, "" if the PDP does not say it.
func (a *Asker) Bundle(who *identity.Principal) string {
	if pdp := a.PDP(who); pdp != nil {
		return pdp.Bundle()
	}
	return ""
}

// Maps reports whether the operator has a mapping for a method.
func (a *Asker) Maps(method string) bool { return a.operator[method] != nil }

// PDP is the client that asks for a principal, nil if there is none.
func (a *Asker) PDP(who *identity.Principal) *authzenclient.Client {
	return a.o.PDP[cmp.Or(who.Tenant, evaluation.DefaultTenant)]
}

func (a *Asker) client(op *Operation) (*authzenclient.Client, *Refusal) {
	if op.Principal == nil {
		return nil, a.refuser(op).unavailable(0, "the request has no principal")
	}
	pdp := a.PDP(op.Principal)
	if pdp == nil {
		return nil, a.refuser(op).unavailable(0, "there is no client of the PDP for the tenant of the principal")
	}
	return pdp, nil
}
