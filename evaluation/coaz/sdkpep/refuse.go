package sdkpep

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
)

// refusal is why a message does not go on, in words for the client and for the operator.
type refusal struct {
	wire *jsonrpc.Error
	why  string
	// undecided is the kind of error for which no decision came; "" if that is not why.
	undecided authzenclient.Kind
}

// Values of the data of an error.
type data struct {
	Type       string `json:"type"`
	Reason     string `json:"reason,omitzero"`
	Suggestion string `json:"suggestion,omitzero"`
	RetryAfter int    `json:"retry_after,omitzero"`
}

var errNoResult = errors.New("the handler returned no result")

func refuse(code int, message string, d data, why string) *refusal {
	text, _ := json.Marshal(d) // of strings and a number
	return &refusal{wire: &jsonrpc.Error{Code: int64(code), Message: message, Data: text}, why: why}
}

// mappingError is that no question could be made. It names the part of the mapping that failed, and no value.
func mappingError(err error) *refusal {
	code, text := coaz.MappingError.Code(coaz.AuthZEN), "COAZ mapping error: "+err.Error()
	if e := (*coaz.Error)(nil); errors.As(err, &e) {
		code, text = e.Code(), e.Error()
	}
	return refuse(code, text, data{Type: "mapping_error"}, err.Error())
}

func unknownMethod() *refusal {
	return refuse(coaz.Denied.Code(coaz.AuthZEN), "Access denied: there is no mapping for this method", data{Type: "authorization_denied"}, "the method has no mapping")
}

// noClient refuses a request for which no PDP can be asked.
func noClient(err error) *refusal {
	r := refuse(coaz.Unreachable.Code(coaz.AuthZEN), "Authorization service unavailable", data{Type: "authorization_unavailable"}, "there is no client for the request: "+err.Error())
	r.undecided = authzenclient.NotAsked
	return r
}

// withheld is the answer in the place of a result that an obligation has to change and could not, or of an
// error, which none changes. The operation may have been executed.
func withheld() *jsonrpc.Error {
	return refuse(coaz.Unreachable.Code(coaz.AuthZEN), "The result is withheld", data{Type: "withheld"}, "").wire
}

// refusalOf says why the PDP's answer is no permit.
func refusalOf(e authzenclient.Enforcement, d coaz.Dialect) *refusal {
	var failure *authzenclient.Error
	if !errors.As(e.Err(), &failure) || failure.Kind == authzenclient.Obligated {
		return denial(e, d)
	}
	r := refuse(coaz.Unreachable.Code(d), "Authorization service unavailable", data{Type: "authorization_unavailable", RetryAfter: int(failure.RetryAfter / time.Second)}, e.String())
	if aboutQuestion(failure) {
		r = refuse(coaz.MappingError.Code(d), "COAZ mapping error: the authorization service does not take the question", data{Type: "mapping_error"}, e.String())
	}
	if failure.Kind.Undecided() {
		r.undecided = failure.Kind
	}
	return r
}

// aboutQuestion reports whether the PDP finds fault with the question.
func aboutQuestion(e *authzenclient.Error) bool {
	of := e.Kind == authzenclient.Refused || e.Kind == authzenclient.BadItem
	return of && slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.Status)
}

func denial(e authzenclient.Enforcement, d coaz.Dialect) *refusal {
	said := data{Type: "authorization_denied", Reason: line(e.Decision().ReasonUser())}
	if e.Decision().Reason() == string(evaluation.ApprovalRequired) {
		said.Suggestion = "ask for approval"
	}
	message := "Access denied"
	if said.Reason != "" {
		message += ": " + said.Reason
	}
	return refuse(coaz.Denied.Code(d), message, said, e.String())
}

// line is a sentence of a policy's author as one line of bounded length.
func line(s string) string {
	const most = 512
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || 0x7f <= r && r <= 0xa0 }), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
