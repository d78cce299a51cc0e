package pep

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// exchange is one message, its answer, and its effects meanwhile.
type exchange struct {
	out     outgoing
	call    call
	answer  answer
	entries entries
	shape   shape
}

// outcomes are those of a message, by the names that cases call them.
var outcomes = map[string]func(x exchange) error{
	"done":            exchange.done,
	"listed":          exchange.listed,
	"denied":          func(x exchange) error { return x.denied("-32001") },
	"denied-sep":      func(x exchange) error { return x.denied("-32401") },
	"denied-unasked":  func(x exchange) error { return errors.Join(x.coded("-32001"), x.notAsked()) },
	"mapping":         exchange.mapping,
	"unavailable":     exchange.unavailable,
	"closed":          func(x exchange) error { return x.coded("-32603") },
	"singly":          exchange.singly,
	"unambiguous":     exchange.unambiguous,
	"unauthenticated": exchange.unauthenticated,
	"refused":         exchange.refused,
	"unasked":         exchange.unasked,
	"passes":          exchange.passes,
	"obeyed":          exchange.obeyed,
	"consistent":      exchange.consistent,
	"same-params":     exchange.sameParams,
}

// failed says which answer came instead of a result.
func (x exchange) failed() error {
	if x.answer.message == nil {
		return fmt.Errorf("status %d and no JSON-RPC response", x.answer.status)
	}
	if x.answer.code() == "" {
		return errors.New("a result that says isError")
	}
	return fmt.Errorf("error %s", x.answer.code())
}

// succeeded reports if the operation had its effect as far as the answer tells.
func (x exchange) succeeded() bool {
	return x.answer.result() != nil && (x.out.method != "tools/call" || member(x.answer.result(), "isError") != true)
}

// done: the operation was executed once, as it was asked for.
func (x exchange) done() error {
	switch {
	case !x.succeeded() || x.answer.message["error"] != nil:
		return fmt.Errorf("%w, want a result", x.failed())
	case len(x.entries.asked) == 0:
		return errors.New("it was let through, and the PDP was not asked")
	case slices.Contains(own, x.out.method):
		return x.answers()
	case len(x.entries.executed) == 0 && (x.out.method == "tools/call" || x.shape == gateway):
		return fmt.Errorf("it was answered, and %s was not executed", x.out.method)
	case len(x.entries.executed) > 1:
		return fmt.Errorf("it was executed %d times", len(x.entries.executed))
	}
	sent, _ := parseObject([]byte(x.out.body))
	for _, e := range x.entries.executed {
		if e.method != x.out.method {
			return fmt.Errorf("%s was executed, want %s", e.method, x.out.method)
		}
		params, err := parse([]byte(e.params))
		if err != nil && e.params != "" {
			return fmt.Errorf("what was executed cannot be read: %w", err)
		}
		for _, name := range []string{"name", "arguments", "uri", "ref", "argument", "taskId", "level"} {
			if want, got := member(sent, "params", name), member(params, name); !equal(want, got) {
				return fmt.Errorf("%s of what was executed is not what was sent", name)
			}
		}
	}
	return x.answers()
}

// let reports if the message had an effect, right or wrong.
func (x exchange) let() bool { return x.succeeded() || len(x.entries.executed) > 0 }

// answers holds the response to the form of every response: JSON-RPC, with the id of the message.
func (x exchange) answers() error {
	if version := x.answer.message["jsonrpc"]; x.answer.message != nil && version != "2.0" {
		return errors.New(`the answer is not of JSON-RPC 2.0: jsonrpc is not "2.0"`)
	}
	want, err := parse([]byte(x.out.id))
	if err != nil {
		return nil // the case sends an id that is none
	}
	if got, err := parse([]byte(x.answer.id)); err != nil || !equal(want, got) {
		return fmt.Errorf("the id of the answer is %q, want %s", x.answer.id, x.out.id)
	}
	return nil
}

// nothing is an error if anything was executed.
func (x exchange) nothing() error {
	if len(x.entries.executed) > 0 {
		return fmt.Errorf("%s was executed", x.entries.executed[0].method)
	}
	if x.succeeded() {
		return errors.New("there is a result")
	}
	return nil
}

func (x exchange) notAsked() error {
	if len(x.entries.asked) > 0 {
		return errors.New("the PDP was asked")
	}
	return nil
}

// coded is one error code, and nothing executed.
func (x exchange) coded(code string) error {
	if err := x.nothing(); err != nil {
		return err
	}
	if x.answer.code() != code {
		return fmt.Errorf("%w, want error %s", x.failed(), code)
	}
	if _, ok := member(x.answer.message, "error", "message").(string); !ok {
		return errors.New("the error has no message")
	}
	return x.answers()
}

// denied: the PDP was asked and its deny was obeyed. A tool's result may say it instead.
func (x exchange) denied(code string) error {
	if len(x.entries.asked) == 0 {
		return errors.New("the PDP was not asked")
	}
	if x.answer.result() != nil && !x.succeeded() {
		if err := x.nothing(); err != nil {
			return err
		}
		return x.answers()
	}
	return x.coded(code)
}

// mapping: no question could be made, so none was asked.
func (x exchange) mapping() error {
	if err := x.coded("-32602"); err != nil {
		return err
	}
	return x.notAsked()
}

// unavailable: the PDP was asked and gave no decision.
func (x exchange) unavailable() error {
	if len(x.entries.asked) == 0 {
		return errors.New("the PDP was not asked")
	}
	return x.coded("-32603")
}

// singly: done, by a PEP that asks one question after the other, of a PDP that is wrong about batches only.
func (x exchange) singly() error {
	for _, a := range x.entries.asked {
		if a.endpoint != "evaluation" {
			return errors.New("the PDP was asked for several decisions at once, and gave one")
		}
	}
	return x.done()
}

// unambiguous: refused, or executed in the only reading that it has, which is the one that was asked about.
func (x exchange) unambiguous() error {
	if len(x.entries.executed) == 0 {
		return x.refused()
	}
	params, err := parse([]byte(x.entries.executed[0].params))
	if err != nil {
		return fmt.Errorf("what was executed has more than one reading: %w", err)
	}
	want := member(params, "arguments", "amount")
	for _, q := range x.entries.questions() {
		if !equal(want, member(q, "resource", "properties", "amount")) {
			return errors.New("what was executed is not what was asked about")
		}
	}
	return nil
}

// unauthenticated: the caller is not known, so nothing happened.
func (x exchange) unauthenticated() error {
	if err := x.nothing(); err != nil {
		return err
	}
	if x.answer.status != http.StatusUnauthorized {
		return fmt.Errorf("status %d, want 401", x.answer.status)
	}
	return x.notAsked()
}

// refused: nothing was executed, whatever is said about it.
func (x exchange) refused() error {
	if err := x.nothing(); err != nil {
		return err
	}
	if x.answer.status < 400 && x.answer.message == nil {
		return fmt.Errorf("status %d and no error", x.answer.status)
	}
	if id := x.answer.id; id == "" || id == "null" {
		return nil
	}
	return x.answers()
}

// unasked: refused without asking anybody.
func (x exchange) unasked() error {
	if err := x.refused(); err != nil {
		return err
	}
	return x.notAsked()
}

// passes: it went through, and the PDP was not asked.
func (x exchange) passes() error {
	if x.answer.status < 200 || x.answer.status > 299 || x.answer.message["error"] != nil {
		return fmt.Errorf("status %d: it did not pass", x.answer.status)
	}
	if err := x.notAsked(); err != nil || x.out.notification {
		return err
	}
	if !x.succeeded() {
		return fmt.Errorf("%w, want a result", x.failed())
	}
	return x.answers()
}

// obeyed: refused, or asked about and then executed, where the PDP permits everything.
func (x exchange) obeyed() error {
	if !x.succeeded() && len(x.entries.executed) == 0 {
		return x.refused()
	}
	if len(x.entries.asked) == 0 {
		return errors.New("it was let through, and the PDP was not asked")
	}
	return nil
}

// consistent: whatever a message of two readings led to, only get_local_weather can have been executed, once, and only
// if it was asked about: the PDP permits nothing else. Its params have one reading.
func (x exchange) consistent() error {
	if len(x.entries.executed) == 0 {
		return nil
	}
	if len(x.entries.executed) > 1 {
		return fmt.Errorf("it was executed %d times", len(x.entries.executed))
	}
	params, err := parse([]byte(x.entries.executed[0].params))
	if err != nil {
		return fmt.Errorf("what was executed has more than one reading: %w", err)
	}
	if name := member(params, "name"); name != "get_local_weather" {
		return fmt.Errorf("%v was executed, and not permitted", name)
	}
	for _, q := range x.entries.questions() {
		if member(q, "resource", "id") == "get_local_weather" {
			return nil
		}
	}
	return errors.New("get_local_weather was executed, and the PDP was not asked about it")
}

// sameParams: refused, or executed with the params that the mapping of the tool rewritten projected into the question.
func (x exchange) sameParams() error {
	if !x.let() {
		return x.refused()
	}
	if len(x.entries.executed) != 1 {
		return fmt.Errorf("it was executed %d times", len(x.entries.executed))
	}
	params, err := parse([]byte(x.entries.executed[0].params))
	if err != nil {
		return fmt.Errorf("what was executed has more than one reading: %w", err)
	}
	for _, q := range x.entries.questions() {
		if member(q, "action", "name") != "rewritten" {
			continue
		}
		for name, got := range map[string]any{"extra": member(params, "extra"), "note": member(params, "_meta", "note")} {
			if asked := member(q, "context", name); !equal(asked, got) {
				return fmt.Errorf("%s of what was executed is %s, and the PDP was asked about %s", name, show(got), show(asked))
			}
		}
		return nil
	}
	return errors.New("it was let through, and the PDP was not asked by the tool's mapping")
}

// questions are all that the PDP was asked, each complete.
func (e entries) questions() (all []object) {
	for _, a := range e.asked {
		if body, err := parseObject([]byte(a.body)); err == nil {
			all = append(all, complete(body, a.endpoint == "evaluations")...)
		}
	}
	return all
}

// figures are the tools of the binding's figures that declare a mapping.
var figures = []string{"get_customer", "copy_object", "transfer_funds"}

// listed: the list shows the mappings that the tools declare.
func (x exchange) listed() error {
	if err := x.done(); err != nil {
		return err
	}
	o, err := offers()
	if err != nil {
		return err
	}
	want, err := parse([]byte(o.Tools))
	if err != nil {
		return err
	}
	for _, name := range figures {
		declared, shown := mappingOf(want, name), mappingOf(member(x.answer.result(), "tools"), name)
		if shown == nil {
			return fmt.Errorf("%s shows no x-authzen-mapping", name)
		}
		if !equal(declared, shown) {
			return fmt.Errorf("%s shows another x-authzen-mapping than it declares", name)
		}
	}
	return nil
}

// mappingOf is the mapping of a tool in a list.
func mappingOf(tools any, name string) any {
	all, _ := tools.([]any)
	for _, t := range all {
		if member(t, "name") == name {
			return member(t, "inputSchema", "x-authzen-mapping")
		}
	}
	return nil
}
