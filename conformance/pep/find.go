package pep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"time"

	"policy-service/conformance/internal/casefile"
)

// quiet drops the log of net/http about connections: cases cut them on purpose.
var quiet = log.New(io.Discard, "", 0)

// find finds out which kind of PEP it is, in each era that it speaks. A PEP that is not wired to this bench would fail
// every case, which would be of no use to its author; the error says which wire is missing.
func (b *Bench) find(ctx context.Context, t Target) (all []*running, err error) {
	p, err := newPeer(t)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, t.Wait); err != nil {
		return nil, err
	}
	wanted := len(t.Eras) > 0
	if !wanted {
		t.Eras = eras
	}
	var answers []string
	for _, era := range t.Eras {
		r := &running{bench: b, peer: p, era: era, sessions: map[string]string{},
			caller: caller{issuer: b.Wiring.Issuer, resource: t.Resource, claim: t.SubjectClaim, now: time.Now}}
		if err := r.greet(ctx); err != nil && !r.open(ctx) {
			answers = append(answers, fmt.Sprintf("in the %s era (%s): %v", era, era.Version(), err))
			continue
		}
		all = append(all, r)
	}
	if len(all) == 0 || wanted && len(all) < len(t.Eras) {
		return nil, fmt.Errorf("%s lets nothing through that is permitted:\n  %s", t.URL, strings.Join(answers, "\n  "))
	}
	for _, r := range all {
		if err := r.recognise(ctx); err != nil {
			return nil, fmt.Errorf("%s, in the %s era (%s): %w", t.URL, r.era, r.era.Version(), err)
		}
	}
	return all, nil
}

// await waits until the PEP answers anything.
func (p *peer) await(ctx context.Context, wait time.Duration) error {
	until, cancel := context.WithTimeout(ctx, cmp.Or(wait, p.timeout))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := p.knock(until)
		if err == nil || wait == 0 {
			return err
		}
		if last == nil || until.Err() == nil { // the end of the time says less than the error before
			last = err
		}
		select {
		case <-tick.C:
		case <-until.Done():
			return fmt.Errorf("%w, within %v", last, wait)
		}
	}
}

// knock asks for any answer.
func (p *peer) knock(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), nil)
	if err != nil {
		return err
	}
	w, err := p.client.Do(r)
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		return fmt.Errorf("%s does not answer: %w", p.url, inner.Err)
	}
	if err != nil {
		return err
	}
	return w.Body.Close()
}

// greet takes the first steps of a client: it opens a session or not, and lists the tools, from which a gateway learns their
// mappings.
func (r *running) greet(ctx context.Context) error {
	var capabilities any
	if r.era == Legacy {
		id, result, err := r.initialize(ctx, "good")
		if err != nil {
			return err
		}
		r.sessions["good"] = id
		capabilities = member(result, "capabilities", "tasks")
	} else if x, err := r.through(ctx, Step{Ask: "server-discover"}); err == nil {
		capabilities = member(x.answer.result(), "capabilities", "extensions", "io.modelcontextprotocol/tasks")
	}
	r.tasks = capabilities != nil
	return r.list(ctx)
}

// mostPages is more than anybody divides a list of our tools into.
const mostPages = 500

// list lists the tools, page by page.
func (r *running) list(ctx context.Context) error {
	params := ""
	for seen := map[string]bool{}; ; {
		x, err := r.through(ctx, Step{Method: "tools/list", Params: casefile.Text(params)})
		if err != nil {
			return err
		}
		cursor, _ := member(x.answer.result(), "nextCursor").(string)
		if cursor == "" {
			return nil
		}
		if seen[cursor] || len(seen) == mostPages {
			return fmt.Errorf("tools/list: after %d pages nextCursor leads on, or back: the pages have no end", len(seen)+1)
		}
		seen[cursor], params = true, `{"cursor":`+casefile.Quote(cursor)+"}"
	}
}

// open reports if a call is let through without a greeting: then the era is spoken all the same.
func (r *running) open(ctx context.Context) bool {
	if _, begun := r.sessions["good"]; !begun {
		r.sessions["good"] = ""
	}
	x, _ := r.step(ctx, Step{Ask: "tools-call", PDP: "deny"}) // without an answer, there is none
	return x.let()
}

// recognise lets a call through, and looks which side executes it.
func (r *running) recognise(ctx context.Context) error {
	x, err := r.step(ctx, Step{Ask: "tools-call"})
	if err != nil {
		return err
	}
	how, heard := r.bench.book.hears()
	if !heard {
		return fmt.Errorf("get_local_weather was permitted, and nobody reports that it was executed (%d %s%s). "+
			"Give a gateway the upstream %s, and have a server report to %s",
			x.answer.status, excerpt(x.answer.text), x.entries, r.bench.Wiring.Upstream, r.bench.Wiring.Report)
	}
	r.shape = how
	if len(x.entries.asked) == 0 && !x.let() {
		return errors.New("get_local_weather was refused, and the PDP was not asked: " + excerpt(x.answer.text))
	}
	return nil
}
