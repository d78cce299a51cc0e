package ask

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
)

// Refusal is the reason why a request does not go on, as the client reads it.
type Refusal struct {
	Kind Kind
	// Status is that of the HTTP response: 200 unless the configuration or the era has another.
	Status  int
	Code    int
	Message string
	Data    jsontext.Value `json:",omitzero"`
	// Words are its text for a model, "" if that is Message.
	Words string
	// Why is for the operator's log.
	Why string
	// Undecided says in a word why no decision came, "" if that is not why.
	Undecided string
	// Cause is why no question could be made, nil of every other refusal.
	Cause error `json:"-"`
	// Blocked is its reason in the message tool_call_blocked, "" if that is the one in Data.
	Blocked string
	// Shown is the fault of the capability of the call, nil if that is not the reason.
	Shown *capability.Refusal `json:"-"`
	// Wanted is set if people can be asked to approve the denied call, and were not yet.
	Wanted *Wanted `json:"-"`
}

// Failure is the response to the request.
func (r *Refusal) Failure(id rpc.ID) rpc.Message {
	return rpc.Failure(id, rpc.Error{Code: r.Code, Message: r.Message, Data: r.Data})
}

// Kind is the kind of a refusal, by which refusals are counted.
type Kind string

// The kinds.
const (
	Denied      Kind = "denied"
	Unmapped    Kind = "mapping_error" // nothing could be asked
	Unavailable Kind = "authorization_unavailable"
	Pending     Kind = "grant_pending" // the PDP has not settled yet whether an approval may be used
	Withheld    Kind = "withheld"
	Unknown     Kind = "unknown" // no such method, or tool
	RateLimited Kind = "rate_limited"
)

// Suggestions to a client after a refusal. There are no others.
const (
	askForApproval = "ask for approval"
	retryAfter     = "retry after"
	callAgain      = "send the call again"
)

const (
	blocked             = "tool_call_blocked"    // data.type of each refusal of a call, but for the next
	authorizationDenied = "authorization_denied" // that people were asked about, and of every other denial
	authDenied          = -32002                 // of a call that is denied for good, in the words of MCPX
	mostReason          = 512
	again               = 5 * time.Second // after which a PDP that does not say when may be asked again
)

// data are the further members of a refusal's error.
type data struct {
	Type          string `json:"type"`
	Authorization string `json:"authorizationId,omitzero"`
	Reason        string `json:"reason,omitzero"`
	Pointer       string `json:"pointer,omitzero"` // to the value that the policies cannot read, or that does not fit the schema
	Suggestion    string `json:"suggestion,omitzero"`
	// The rest but the last four is of a call that lacks a capability.
	Code       capability.Code `json:"code,omitzero"`
	NextAction string          `json:"next_action,omitzero"`
	Audience   string          `json:"audience,omitzero"`
	Tool       string          `json:"tool,omitzero"` // by the client's name
	ID         string          `json:"id,omitzero"`   // as policies know it
	Argument   string          `json:"argument,omitzero"`
	Nonce      string          `json:"nonce,omitzero"`
	RetryAfter int             `json:"retry_after,omitzero"`
	Refused    []string        `json:"refused,omitzero"`     // the tools that a capability is not granted for
	Approval   string          `json:"approval_id,omitzero"` // with which a capability is asked for again
	Request    *authorization  `json:"authorizationRequest,omitzero"`
}

type refuser struct {
	errors  Errors
	status  int
	call    bool
	era     era.Era
	dialect coaz.Dialect
	mapped  bool   // a mapping of COAZ makes the questions
	tool    string // by the client's name, "" if the request names none
}

func (a *Asker) refuser(op *Operation) refuser {
	w := refuser{errors: a.o.Errors, status: a.o.DenyStatus, call: OfTool(op.Method), era: op.Era}
	w.mapped = a.o.Ask == COAZ || a.operatorMapping(op) != nil
	if op.Tool != nil {
		w.tool = op.Tool.Shown
	}
	if op.Tool != nil && op.Tool.declared != nil {
		w.dialect, w.mapped = op.Tool.declared.Dialect(), true
	}
	if w.errors == ErrorsSEP {
		w.dialect = coaz.SEP
	}
	return w
}

func (w refuser) refuse(kind Kind, code int, message string, d data, why string) *Refusal {
	if d.Type == "" {
		d.Type = string(kind)
		if w.call {
			d.Type = blocked
		} else if kind == Denied {
			d.Type = authorizationDenied
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		text = nil // arguments that are no JSON: there are none such
	}
	status := http.StatusOK
	if kind == Denied {
		status = w.status
	}
	return &Refusal{Kind: kind, Status: status, Code: code, Message: message, Data: text, Why: why}
}

// unmapped refuses a request of which no question could be made. It names the fault, and no value.
func (w refuser) unmapped(err error) *Refusal {
	text := err.Error()
	switch e := (*coaz.Error)(nil); {
	case errors.As(err, &e): // it says so itself
	case w.mapped:
		text = "COAZ mapping error: " + text
	case w.tool != "":
		text = "no question can be made of this call of " + w.tool + ": " + text
	default:
		text = "no question can be made of this request: " + text
	}
	text = line(text, mostReason)
	r := w.refuse(Unmapped, coaz.MappingError.Code(w.dialect), text, data{}, text)
	r.Cause = err
	return r
}

// denial is the PDP's no, or ours where it is not asked.
func (w refuser) denial(reason, why string) *Refusal { return w.says(data{Reason: reason}, why) }

// says makes a refusal whose message ends with the reason.
func (w refuser) says(d data, why string) *Refusal {
	code, message := w.forGood()
	if d.Reason = line(d.Reason, mostReason); d.Reason != "" {
		message += ": " + d.Reason
	}
	return w.refuse(Denied, code, message, d, why)
}

// told is what the PDP says of its no: the reason of the policy, or else that it could not read an argument, and where that
// is. What it says of other parts of the question is for the log: the client did not write them.
func told(e authzenclient.Enforcement) (said data, why string) {
	var in struct {
		Pointer string `json:"pointer"`
	}
	d := e.Decision()
	if len(d.Context()) > 0 && json.Unmarshal(d.Context(), &in) != nil {
		in.Pointer = ""
	}
	said, why = data{Reason: d.ReasonUser()}, e.String()
	if in.Pointer != "" {
		why += " at " + line(in.Pointer, mostReason)
	}
	if _, below, ok := strings.Cut(in.Pointer, "/context/arguments"); ok && (below == "" || below[0] == '/') {
		said.Pointer = line("/params/arguments"+below, mostReason) // as the client sent it
		said.Reason = cmp.Or(said.Reason, d.Reason(), string(evaluation.ErroredPolicy))
	}
	return said, why
}

// forGood is the code of a denial, and its message.
func (w refuser) forGood() (int, string) {
	if w.errors == ErrorsMCPX && w.era == era.Legacy && w.call && w.dialect != coaz.SEP {
		return authDenied, "Authorization denied"
	}
	return coaz.Denied.Code(w.dialect), "Access denied"
}

// approval is the PDP's no to a call that people could approve, the next step, and a suggestion to its client.
func (w refuser) approval(wanted authorization, next, suggestion, why string) *Refusal {
	wanted.Reason = cmp.Or(line(wanted.Reason, mostReason), "a person must approve this call")
	return w.asks(data{Reason: wanted.Reason, Suggestion: suggestion, Request: &wanted}, next, why)
}

// asks refuses a call that lacks a person's yes. The message says why, and the next step; with [ErrorsMCPX] it is the two
// words that 000 prints, and the suggestion says the same.
func (w refuser) asks(d data, next, why string) *Refusal {
	const message = "Authorization required"
	says := strings.TrimRight(d.Reason, ". ") + ". " + next
	words, shown := message+": "+says, message
	if w.errors == ErrorsMCPX {
		d.Suggestion = says
	} else {
		shown = words
	}
	r := w.refuse(Denied, coaz.Denied.Code(w.dialect), shown, d, why)
	r.Words = words
	return r
}

func (w refuser) unavailable(after time.Duration, why string) *Refusal {
	d := data{RetryAfter: seconds(cmp.Or(after, again)), Suggestion: retryAfter}
	return w.refuse(Unavailable, coaz.Unreachable.Code(w.dialect), "authorization service unavailable", d, why)
}

func (w refuser) withheld(why string) *Refusal {
	return w.refuse(Withheld, coaz.Unreachable.Code(w.dialect), "the result is withheld", data{Type: string(Withheld)}, why)
}

// unknownMethod is not 404 in the legacy era: that would tell a client that its session is over.
func (w refuser) unknownMethod() *Refusal {
	r := w.refuse(Unknown, rpc.MethodNotFound, "unknown method", data{Type: "unknown_method"}, "there is no such method")
	if w.era == era.Modern {
		r.Status = http.StatusNotFound
	}
	return r
}

// UnknownTool refuses a call of a tool that does not exist. One that is hidden, or does not compile, is refused in the same
// way, so that a client cannot tell them apart.
func UnknownTool() *Refusal {
	return refuser{call: true}.refuse(Unknown, rpc.InvalidParams, "unknown tool", data{}, "there is no such tool")
}

// seconds are those after which one may ask again: whole ones, and at least one.
func seconds(d time.Duration) int { return max(1, int((d+time.Second-1)/time.Second)) }

// failed refuses since the PDP could not be asked, or its answer is not known.
func (w refuser) failed(err error) *Refusal {
	r := w.failure(err)
	if r == nil {
		r = w.unavailable(0, err.Error())
		r.Undecided = otherwise
	}
	return r
}

// otherwise is why no decision came, if the client of the PDP does not say.
const otherwise = "other"

// UndecidedWhy are all words for why no decision came.
func UndecidedWhy() []string {
	words := []string{otherwise}
	for _, k := range authzenclient.Kinds() {
		if k.Undecided() {
			words = append(words, undecided(k))
		}
	}
	return words
}

func undecided(k authzenclient.Kind) string { return strings.ReplaceAll(string(k), " ", "_") }

// failure is why the PDP's answer is no permit, if it is not that the PDP denies.
func (w refuser) failure(err error) *Refusal {
	var e *authzenclient.Error
	switch {
	case !errors.As(err, &e), e.Kind == authzenclient.Obligated:
		return nil
	case over(e):
		return w.denial("", e.Error())
	case e.Op == "request" && e.Status == http.StatusTooManyRequests: // too many of a person's approval requests wait
		d := data{Type: string(RateLimited), RetryAfter: seconds(cmp.Or(e.RetryAfter, again)), Suggestion: retryAfter}
		return w.refuse(RateLimited, coaz.Denied.Code(w.dialect), "too many requests", d, e.Error())
	case aboutQuestion(e):
		r := w.refuse(Unmapped, coaz.MappingError.Code(w.dialect), "COAZ mapping error: the authorization service does not take the question", data{}, e.Error())
		r.Undecided = undecided(e.Kind)
		return r
	}
	r := w.unavailable(e.RetryAfter, e.Error())
	if e.Kind.Undecided() {
		r.Undecided = undecided(e.Kind)
	}
	return r
}

// aboutQuestion reports whether the PDP finds fault with the question.
func aboutQuestion(e *authzenclient.Error) bool {
	of := e.Kind == authzenclient.Refused || e.Kind == authzenclient.BadItem
	return of && slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.Status)
}

// line is a foreign text as one line of bounded length.
func line(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Wanted is a call that people can approve: one that the PDP denied for no other reason, or one that is repeated while they
// are asked. It permits nothing. [Asker.Ask] with [Answered.Standing] has the PDP decide once they have said something.
type Wanted struct {
	pdp    *authzenclient.Client
	refuse refuser
	of     authorization
	denied *authzenclient.Enforcement // nothing if it was not asked about just now
}

var nothing = &authzenclient.Enforcement{}

// Wanted is the approval that people were asked for, for a request that is repeated. They are not asked again.
func (a *Asker) Wanted(ctx context.Context, op Operation) (*Wanted, *Refusal) {
	w := a.refuser(&op)
	plan, refusal := a.Plan(ctx, op)
	if refusal != nil {
		return nil, refusal
	}
	last, ok := plan.last()
	if !ok {
		return nil, w.denial("", "people cannot be asked about the request")
	}
	return a.wanted(w, plan.pdp, &op, last), nil
}

func (a *Asker) wanted(w refuser, pdp *authzenclient.Client, op *Operation, last question) *Wanted {
	of := authorization{Tool: op.Tool.Shown, Arguments: Arguments(op.Params), Requester: last.requests[0].Subject.ID}
	return &Wanted{pdp: pdp, refuse: w, of: of, denied: nothing}
}

// PDP is the client that asked, and that follows people's answer.
func (w *Wanted) PDP() *authzenclient.Client { return w.pdp }

// Ask has people asked, and does not wait for them. An equal question joins one that is open already, also at another
// gateway. A Wanted of [Asker.Wanted] has nothing to ask about: that was done before.
func (w *Wanted) Ask(ctx context.Context) (approvals.Standing, *Refusal) {
	s, err := approvals.Ask(ctx, w.pdp, *w.denied, approvals.JoinEqual())
	if err != nil {
		return s, w.Failed(err)
	}
	w.denied = nothing // thousands may wait, and need it no more
	return s, nil
}

// Required refuses the call for now: people are asked, and have not decided. The same call again goes on from there.
func (w *Wanted) Required(s approvals.Standing) *Refusal {
	of := w.of
	of.ID, of.Expires = idOf(s), s.Ends().UTC()
	next := "Send the same call again: it runs once the approval request " + of.ID + " is approved"
	if !of.Expires.IsZero() {
		next += ", which can be until " + of.Expires.Format(time.RFC3339)
	}
	return w.refuse.approval(of, next, callAgain, s.String())
}

// Undecidable refuses the call for now: for a reason no person can decide about the request that was filed.
func (w *Wanted) Undecidable(s approvals.Standing, why string) *Refusal {
	of := w.of
	of.ID, of.Expires = idOf(s), s.Ends().UTC()
	next := "Nobody can approve it: " + why + " (approval request " + of.ID + "); say so to who operates this gateway"
	return w.refuse.approval(of, next, askForApproval, s.String()+", and nobody can decide: "+why)
}

// Denied refuses the call for good: people were asked, and it is over without their yes. An equal call may have taken back
// the request that this one has joined, and people have said nothing then: it can be sent again.
func (w *Wanted) Denied(s approvals.Standing) *Refusal {
	if err := s.Err(); err != nil && !over(err) {
		return w.Failed(err)
	}
	if s.Status() == "cancelled" {
		return w.refuse.spent(idOf(s), "an equal call that has ended took back what people were asked", s.String())
	}
	return w.refuse.over(idOf(s), whyNot(s), s.String())
}

// Failed refuses the call since people could not be asked, or their answer is not known. Err is of [authzenclient.Client].
func (w *Wanted) Failed(err error) *Refusal {
	return w.refuse.failed(err)
}

// idOf is the id by which people and clients know the request that is waited for.
func idOf(s approvals.Standing) string {
	for _, id := range s.Approvals() {
		return id
	}
	return s.Task().ID()
}

func whyNot(s approvals.Standing) string {
	switch s.Status() {
	case "denied":
		return cmp.Or(line(s.Reason(), mostReason), "a person said no")
	case "expired":
		return "nobody decided in time"
	}
	return "the approval cannot be used"
}

// authorization is a request for approval as its client reads it. One that is not filed has no id, and does not expire.
type authorization struct {
	ID        string         `json:"id,omitzero"`
	Tool      string         `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	Requester string         `json:"requester"`
	Reason    string         `json:"reason"`
	Expires   time.Time      `json:"expiresAt,omitzero"`
}

// unused refuses a call whose approval, or continuation of one, gave no permit.
func (w refuser) unused(by Answered, e authzenclient.Enforcement) *Refusal {
	d, ended := e.Decision(), over(e.Err())
	if r := w.failure(e.Err()); r != nil && !ended {
		return r
	}
	next, after := approvals.Next(e)
	expired := !ended && d.Reason() == string(evaluation.ApprovalExpired)
	switch {
	case by.Standing != nil && (ended || expired && next == evaluation.NextRequest): // one that was used up has ended, too
		return w.spent(by.id(), noMore, e.String())
	case ended, expired && next != evaluation.NextRetry:
		return w.over(by.id(), "the approval has ended", e.String())
	case next == evaluation.NextRetry:
		return w.pending(by.id(), after, e.String())
	case d.Reason() == string(evaluation.ApprovalRevoked):
		return w.over(by.id(), "an approver took it back", e.String())
	}
	return w.denial(d.ReasonUser(), e.String())
}

// pending refuses a call whose approval is given, and not on record yet, or in doubt. The PDP decides again when it is sent again.
func (w refuser) pending(id string, after time.Duration, why string) *Refusal {
	d := data{Authorization: id, Reason: string(evaluation.ApprovalPending), Suggestion: callAgain, RetryAfter: seconds(cmp.Or(after, again))}
	r := w.asks(d, "Whether the approval counts is not settled yet: send the same call again after "+strconv.Itoa(d.RetryAfter)+" s", why)
	r.Kind = Pending
	return r
}

// id is that of the approved request, "" if it is not known.
func (a Answered) id() string {
	if a.Standing == nil {
		return ""
	}
	return idOf(*a.Standing)
}

// over reports whether nothing can come of people's word any more.
func over(err error) bool {
	var e *authzenclient.Error
	return errors.As(err, &e) && e.Kind == authzenclient.NotApproved
}

// over is that a call that people were asked about will not happen.
func (w refuser) over(id, reason, why string) *Refusal {
	code, _ := w.forGood()
	return w.refuse(Denied, code, "Authorization denied", data{Type: authorizationDenied, Authorization: id, Reason: reason}, why)
}

const noMore = "the approval does not count any more: an equal call has used it, its time is up, or an approver took it back"

// spent refuses a call whose approval counts no more, as after an equal call: they would have to be asked anew, and no
// request has them asked twice.
func (w refuser) spent(id, reason, why string) *Refusal {
	next := "Send the same call again to have people asked anew"
	if id != "" {
		next += "; the approval was " + id
	}
	return w.asks(data{Authorization: id, Reason: reason, Suggestion: callAgain}, next, why)
}
