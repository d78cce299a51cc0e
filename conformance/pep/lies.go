package pep

import (
	"io"
	"net"
	"net/http"
	"strings"
)

// replies are the ways in which the recording PDP can answer, by the names that cases call them. Those that fail are
// lies: they are no decision, and the client gets -32603.
func replies() map[string]reply {
	all := map[string]reply{
		"permit":         decide(func(object) bool { return true }),
		"deny":           decide(func(object) bool { return false }),
		"deny-read":      decide(func(q object) bool { return member(q, "action", "name") != "read" }),
		"deny-write":     decide(func(q object) bool { return member(q, "action", "name") != "write" }),
		"permit-weather": decide(func(q object) bool { return member(q, "resource", "id") == "get_local_weather" }),

		"permit-with-reason":     always(true, object{"reason": "rule 7", "decision": false}),
		"permit-with-obligation": always(true, object{"obligations": []any{object{"type": "x-conformance", "id": "obligation-1"}}}),
		"deny-with-odd-reason":   always(false, object{"reason": []any{7}, "reason_user": object{"en": nil}, "id": object{}}),
		"deny-with-true-inside":  always(false, object{"decision": true, "evaluations": []any{object{"decision": true}}}),
	}
	for name, r := range lies() {
		all[name] = r
	}
	return all
}

// decide answers each question by itself.
func decide(permits func(q object) bool) reply { return explain(nil, permits) }

// always gives the same decision, and says more about it.
func always(decision bool, context object) reply {
	return explain(context, func(object) bool { return decision })
}

// explain decides as far as the PEP wants it: for a PEP that wants the first permit alone, it leaves out the denies after it.
func explain(context object, permits func(q object) bool) reply {
	return func(w http.ResponseWriter, q query) {
		semantic := member(q.body, "options", "evaluations_semantic")
		decisions := []any{}
		for _, one := range q.each {
			decision := object{"decision": permits(one)}
			if context != nil {
				decision["context"] = context
			}
			decisions = append(decisions, decision)
			if decision["decision"] == true && semantic == "permit_on_first_permit" || decision["decision"] == false && semantic == "deny_on_first_deny" {
				break
			}
		}
		writeDecisions(w, q, decisions)
	}
}

func writeDecisions(w http.ResponseWriter, q query, decisions []any) {
	items, _ := q.body["evaluations"].([]any)
	switch {
	case q.body == nil || q.endpoint != "evaluation" && q.endpoint != "evaluations":
		writeJSON(w, http.StatusBadRequest, object{"status": "this is no question"})
	case q.endpoint == "evaluation" || len(items) == 0:
		writeJSON(w, http.StatusOK, decisions[0])
	default:
		writeJSON(w, http.StatusOK, object{"evaluations": decisions})
	}
}

func lies() map[string]reply {
	permitted := func(q query) string { return answerTo(q, `{"decision":true}`) }
	as := func(status int, contentType string, body func(q query) string) reply {
		return func(w http.ResponseWriter, q query) { writeText(w, status, contentType, body(q)) }
	}
	item := func(text string) reply { // each decision is this text
		return as(http.StatusOK, "application/json", func(q query) string { return answerTo(q, text) })
	}
	whole := func(body string) reply {
		return as(http.StatusOK, "application/json", func(query) string { return body })
	}
	return map[string]reply{
		"reset": func(w http.ResponseWriter, _ query) { reset(w) },
		"hang": func(w http.ResponseWriter, q query) {
			q.hold(false)
			writeText(w, http.StatusOK, "application/json", permitted(q))
		},
		"stops":          func(w http.ResponseWriter, q query) { stop(w, q, permitted(q)) },
		"no-batches":     withoutBatches,
		"status-500":     as(http.StatusInternalServerError, "application/json", permitted),
		"status-503":     as(http.StatusServiceUnavailable, "application/json", permitted),
		"status-400":     as(http.StatusBadRequest, "application/json", permitted),
		"status-401":     as(http.StatusUnauthorized, "application/json", permitted),
		"status-403":     as(http.StatusForbidden, "application/json", permitted),
		"status-404":     as(http.StatusNotFound, "application/json", permitted),
		"status-429":     as(http.StatusTooManyRequests, "application/json", permitted),
		"status-204":     func(w http.ResponseWriter, _ query) { w.WriteHeader(http.StatusNoContent) },
		"redirect-302":   redirect(http.StatusFound),
		"redirect-307":   redirect(http.StatusTemporaryRedirect),
		"html":           as(http.StatusOK, "text/html", permitted),
		"octets":         as(http.StatusOK, "application/octet-stream", permitted),
		"empty":          whole(""),
		"not-json":       whole("permit"),
		"true":           whole("true"),
		"array":          whole(`[{"decision":true}]`),
		"object":         whole("{}"),
		"other-case":     item(`{"Decision":true}`),
		"string":         item(`{"decision":"true"}`),
		"number":         item(`{"decision":1}`),
		"null":           item(`{"decision":null}`),
		"list":           item(`{"decision":[true]}`),
		"doubled":        item(`{"decision":false,"decision":true}`),
		"doubled-other":  item(`{"decision":true,"decision":false}`),
		"bad-utf8":       item("{\"decision\":true,\"context\":{\"reason\":\"\xff\"}}"),
		"two-values":     as(http.StatusOK, "application/json", func(q query) string { return permitted(q) + permitted(q) }),
		"cut":            as(http.StatusOK, "application/json", func(q query) string { return strings.TrimSuffix(permitted(q), "}") }),
		"short":          whole(`{"evaluations":[{"decision":true}]}`),
		"none":           whole(`{"evaluations":[]}`),
		"long":           whole(`{"evaluations":[{"decision":true},{"decision":true},{"decision":true}]}`),
		"single":         whole(`{"decision":true}`),
		"batch":          whole(`{"evaluations":[{"decision":true}]}`),
		"doubled-batch":  whole(`{"evaluations":[{"decision":false},{"decision":false}],"evaluations":[{"decision":true},{"decision":true}]}`),
		"item-null":      whole(`{"evaluations":[{"decision":true},null]}`),
		"item-undecided": whole(`{"evaluations":[{"decision":true},{"context":{}}]}`),
	}
}

// answerTo is an answer in which each decision is this text.
func answerTo(q query, item string) string {
	if q.endpoint != "evaluations" {
		return item
	}
	all := make([]string, max(len(q.each), 1))
	for n := range all {
		all[n] = item
	}
	return `{"evaluations":[` + strings.Join(all, ",") + "]}"
}

// reset ends the connection as a PDP does that is killed: without an answer.
func reset(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // over HTTP/2, which is not offered
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}

// stop says nearly all of a text, and the rest when it is too late.
func stop(w http.ResponseWriter, q query, text string) {
	most := len(text) - 1
	writeText(w, http.StatusOK, "application/json", text[:most])
	_ = http.NewResponseController(w).Flush() // the PEP may be gone
	q.hold(true)
	_, _ = io.WriteString(w, text[most:])
}

// withoutBatches is a PDP that takes one question at a time, and denies every write.
func withoutBatches(w http.ResponseWriter, q query) {
	if q.endpoint == "evaluations" {
		writeText(w, http.StatusNotFound, "text/plain", "there is no such endpoint")
		return
	}
	replies()["deny-write"](w, q)
}

// redirect sends the PEP to where everything is permitted.
func redirect(status int) reply {
	return func(w http.ResponseWriter, q query) {
		if strings.HasPrefix(q.path, elsewhere) {
			writeText(w, http.StatusOK, "application/json", answerTo(q, `{"decision":true}`))
			return
		}
		w.Header().Set("Location", elsewhere+q.path)
		w.WriteHeader(status)
	}
}
