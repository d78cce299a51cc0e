package pep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"policy-service/conformance"
	"policy-service/conformance/internal/casefile"
)

// running is a PEP that is judged in one era.
type running struct {
	bench    *Bench
	peer     *peer
	caller   caller
	era      Era
	shape    shape
	tasks    bool              // the PEP advertises them
	sessions map[string]string // of a legacy PEP, by the kind of token that opened each
	sent     int
}

var (
	// errSkip is for a case that makes no sense for this PEP.
	errSkip = errors.New("skipped")
	// errSilent is for a message that got no answer.
	errSilent = errors.New("no answer")
	// errGone is for a PEP that lets nothing through any more.
	errGone = errors.New("the PEP lets nothing through any more that is permitted, so the rest is skipped")
)

// judge asks one case. The result is of a PEP that is gone if nothing more can be asked of it.
func (r *running) judge(ctx context.Context, c Case) (result conformance.Result, gone bool) {
	result = r.result(c)
	if c.Needs != "" && c.Needs != r.shape {
		result.Outcome = conformance.Skipped
		return result, false
	}
	shaken := false // it may need a while to work again
	for n := 0; n < len(c.Steps) && result.Outcome == conformance.Passed; n++ {
		s := c.Steps[n]
		_, lies := lies()[s.PDP]
		for sent := 0; sent < max(s.Repeat, 1) && result.Outcome == conformance.Passed; sent++ {
			x, err := r.step(ctx, s)
			shaken = shaken || lies || errors.Is(err, errSilent)
			switch {
			case errors.Is(err, errSkip):
				result.Outcome = conformance.Skipped
			case err != nil:
				result.Outcome, result.Step, result.Failure = conformance.Failed, n+1, err.Error()
				result.Asked, result.Answered = excerpt(x.out.body), fmt.Sprintf("%d %s%s", x.answer.status, excerpt(x.answer.text), x.entries)
			}
		}
	}
	if c.Advisory && result.Outcome == conformance.Failed {
		result.Outcome = conformance.Advised
	}
	if !shaken {
		return result, false
	}
	err := r.settle(ctx)
	if err != nil {
		result.Outcome, result.Failure = conformance.Failed, strings.TrimPrefix(result.Failure+"; afterwards: "+err.Error(), "; ")
	}
	return result, errors.Is(err, errGone)
}

// result is that of a case before it is asked.
func (r *running) result(c Case) conformance.Result {
	return conformance.Result{ID: c.ID, Plan: fmt.Sprintf("%s (%s)", c.Plan, r.era), Title: c.Title, Outcome: conformance.Passed}
}

// step sends one message while the PDP answers as the step says, and judges the outcome. A session that the PEP has
// ended is opened again, as MCP wants it.
func (r *running) step(ctx context.Context, s Step) (exchange, error) {
	x, err := r.once(ctx, s)
	if !x.sessionLost() {
		return x, err
	}
	maps.DeleteFunc(r.sessions, func(_, id string) bool { return id == x.out.session })
	return r.once(ctx, s)
}

// sessionLost reports if that is all that the PEP says.
func (x exchange) sessionLost() bool {
	return x.answer.status == http.StatusNotFound && x.out.session != "" && x.answer.code() != "-32601" && len(x.entries.asked)+len(x.entries.executed) == 0
}

func (r *running) once(ctx context.Context, s Step) (exchange, error) {
	known, err := calls()
	if err != nil {
		return exchange{}, err
	}
	x := exchange{call: known[s.Ask], shape: r.shape}
	if x.out, err = r.message(ctx, s, x.call); err != nil {
		return x, fmt.Errorf("it cannot be sent: %w", err)
	}
	r.bench.pdp.behave(replies()[cmp.Or(s.PDP, "permit")])
	r.bench.book.begin()
	x.answer, err = r.peer.send(ctx, r.era, x.out)
	x.entries = r.bench.book.end()
	r.bench.pdp.behave(replies()["permit"])
	if err != nil {
		return x, fmt.Errorf("%w: %w", errSilent, err)
	}
	if x.call.Tasks && !r.tasks && !x.let() {
		return x, errSkip
	}
	if (s.Optional || x.call.Optional) && x.answer.code() == "-32601" && len(x.entries.asked)+len(x.entries.executed) == 0 {
		return x, errSkip
	}
	return x, r.check(s.Expectation, x)
}

// through sends a message that must have a result. Its other faults are for cases of their own.
func (r *running) through(ctx context.Context, s Step) (exchange, error) {
	x, err := r.step(ctx, s)
	if err == nil && !x.succeeded() {
		err = x.failed()
	}
	if err != nil {
		return x, fmt.Errorf("%s: %w: %d %s%s", x.out.method, err, x.answer.status, excerpt(x.answer.text), x.entries)
	}
	return x, nil
}

// settle waits, after a PDP that failed or a message without an answer, until the PEP lets a call through again: one with
// a circuit breaker needs a while.
func (r *running) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.bench.recovery)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		x, err := r.through(ctx, Step{Ask: "tools-call"})
		if x.let() && len(x.entries.asked) == 0 {
			return errors.New("a call was let through, and the PDP was not asked about it")
		}
		if x.let() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: for %v, %w", errGone, r.bench.recovery, err)
		}
	}
}

// values are those of this run that cases name.
func (r *running) values() map[string]string {
	v := map[string]string{
		"subject": r.caller.subject(), "sub": alice, "resource": r.caller.resource, "issuer": r.caller.issuer, "client": client, "meta": "", "stranger": stranger,
	}
	if r.era == Modern {
		v["meta"] = "," + metaOfCall
	}
	return v
}

// message makes the message of a step.
func (r *running) message(ctx context.Context, s Step, c call) (out outgoing, err error) {
	r.sent++
	values := r.values()
	values["id"] = cmp.Or(s.MessageID, fmt.Sprint(r.sent))
	params := cmp.Or(string(s.Params), string(c.Params))
	out = outgoing{method: cmp.Or(s.Method, c.Method), id: values["id"], notification: c.Notification, header: s.Header, inQuery: s.InQuery}
	if s.Call != "" {
		out.method = "tools/call"
		params = fmt.Sprintf(`{"name":%s,"arguments":%s}`, casefile.Quote(s.Call), cmp.Or(string(s.Arguments), "{}"))
	}
	if o, err := parseObject([]byte(params)); err == nil {
		name, _ := o["name"].(string)
		uri, _ := o["uri"].(string)
		out.name = cmp.Or(name, uri)
	}
	out.body = r.era.compose(out.method, params, out.id, out.notification)
	if s.Message != "" {
		out.body = s.Message
	}
	if out.body, err = casefile.Fill(out.body, values); err != nil {
		return out, err
	}
	kind := cmp.Or(s.Token, "good")
	if out.token, err = r.caller.kinds()[kind](); err != nil || r.era == Modern || out.method == "initialize" {
		return out, err
	}
	out.session, err = r.session(ctx, kind)
	return out, err
}

// opening are the kinds of tokens with which a session can begin; any other is sent in the session of the good one.
var opening = []string{"good", "rs256", "aud-array", "aud-array-one", "no-client", "no-roles", "other-person"}

// session is that of a kind of token. It is opened the first time.
func (r *running) session(ctx context.Context, kind string) (string, error) {
	if !slices.Contains(opening, kind) {
		kind = "good"
	}
	if id, open := r.sessions[kind]; open {
		return id, nil
	}
	id, _, err := r.initialize(ctx, kind)
	if err != nil {
		return "", fmt.Errorf("no session for the token %s: %w", kind, err)
	}
	r.sessions[kind] = id
	return id, nil
}

// initialize opens a session. A PEP without sessions gives it no id.
func (r *running) initialize(ctx context.Context, kind string) (session string, result any, err error) {
	x, err := r.through(ctx, Step{Ask: "initialize", Token: kind})
	if err != nil {
		return "", nil, err
	}
	session = x.answer.session
	token, err := r.caller.kinds()[kind]()
	if err != nil {
		return "", nil, err
	}
	initialized := outgoing{method: "notifications/initialized", notification: true, session: session, token: token}
	initialized.body = Legacy.compose(initialized.method, "", "", true)
	_, err = r.peer.send(ctx, Legacy, initialized)
	r.bench.book.end() // a notification may be asked about wrongly; a case of its own says so
	return session, x.answer.result(), err
}

// check holds an exchange to the expectation, if there is one.
func (r *running) check(e Expectation, x exchange) error {
	if e.Want == "" {
		return nil
	}
	var all []string
	for want := range strings.SplitSeq(e.Want, " or ") {
		err := outcomes[want](x)
		if err == nil {
			all = nil
			break
		}
		all = append(all, err.Error())
	}
	if len(all) > 0 {
		return errors.New(strings.Join(all, "; or "))
	}
	// An outcome without an effect may come without a question: then there is nothing to compare.
	if e.MayAsk != nil && (x.let() || len(x.entries.asked) > 0) {
		e.Asked = e.MayAsk
	}
	if e.Asked != nil {
		if err := r.checkAsked(e, x); err != nil {
			return err
		}
	}
	if err := e.checkText(x.answer); err != nil {
		return err
	}
	if where := r.bench.book.gave(e.TokenHiddenFrom); where != "" {
		return fmt.Errorf("the %s got a client's token, in %s", e.TokenHiddenFrom, where)
	}
	if late := r.bench.book.tooLate(); e.NothingLate && len(late) > 0 {
		return fmt.Errorf("%s %s was executed after it had been answered", late[0].method, excerpt(late[0].params))
	}
	return nil
}

// checkText looks at how an error is worded.
func (e Expectation) checkText(a answer) error {
	message, _ := member(a.message, "error", "message").(string)
	if len(e.Mentions) > 0 && !slices.ContainsFunc(e.Mentions, func(m string) bool { return strings.Contains(message, m) }) {
		return fmt.Errorf("the error mentions none of %s", strings.Join(e.Mentions, ", "))
	}
	for _, hidden := range e.Hides {
		if strings.Contains(a.text, hidden) {
			return fmt.Errorf("the answer holds %q, which is nobody's business", hidden)
		}
	}
	return nil
}

// checkAsked compares the questions that the PDP got, with all defaults applied, so that one batch and one question after the other
// are the same.
func (r *running) checkAsked(e Expectation, x exchange) error {
	var want []object
	for _, text := range *e.Asked {
		filled, err := casefile.Fill(string(text), r.values())
		if err != nil {
			return err
		}
		o, err := parseObject([]byte(filled))
		if err != nil {
			return fmt.Errorf("the case is wrong: %w", err)
		}
		want = append(want, plain(o))
	}
	var got []object
	for _, a := range x.entries.asked {
		body, err := parseObject([]byte(a.body))
		if err != nil {
			return fmt.Errorf("what the PDP was asked cannot be read: %w", err)
		}
		if single := a.endpoint == "evaluation"; !single && (a.endpoint != "evaluations" || e.At == "evaluation") {
			return fmt.Errorf("the PDP was asked at %s", a.endpoint)
		}
		got = append(got, complete(body, a.endpoint == "evaluations")...)
	}
	if len(got) != len(want) {
		return fmt.Errorf("the PDP was asked %d questions, want %d", len(got), len(want))
	}
	if len(x.entries.asked) > 1 {
		inOrder(want, got)
	}
	for n := range want {
		for _, name := range slices.Sorted(maps.Keys(union(want[n], got[n]))) {
			v, there := got[n][name]
			if !asks(want[n][name], v, there) {
				return fmt.Errorf("question %d: %s is %s, want %s", n+1, name, show(v), show(want[n][name]))
			}
		}
	}
	return nil
}

// inOrder puts questions that were asked one by one, perhaps at once, into the order in which they are wanted.
func inOrder(want, got []object) {
	for n := range want {
		if m := slices.IndexFunc(got[n:], func(g object) bool { return asks(want[n], g, true) }); m > 0 {
			got[n], got[n+m] = got[n+m], got[n]
		}
	}
}

// asks compares the wanted value with the one that was asked, if it is there: a member that is to be null may be left out, as AuthZEN
// wants it, and so may an object in which nothing else is.
func asks(want, got any, there bool) bool {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		for name := range union(w, g) {
			v, has := g[name]
			if inner, wanted := w[name]; !wanted || !asks(inner, v, has) {
				return false
			}
		}
		return ok || !there
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(w, g, func(w, g any) bool { return asks(w, g, true) })
	case nil:
		return got == nil
	}
	return there && equal(want, got)
}

// union has the members of both.
func union(a, b object) object {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
