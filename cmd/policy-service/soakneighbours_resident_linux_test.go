package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/pdptest/inside/export"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/latency"
	"policy-service/pdp/pdptest/inside/record"
)

// residentRate is how often the resident asks.
const residentRate = 50

// resident asks for decisions at set moments, whatever became of those before, on
// connections of its own, and knows what the answers are to be.
type resident struct {
	url, key string
	client   *http.Client
	number   atomic.Int64

	mu       sync.Mutex
	recorded map[string]bool // allows and denies, by id of the record
	loose    int             // questions of which nobody knows whether they were answered
	// What the root forbids at once: when that was written, and when it was first seen.
	written, seen time.Time
}

func newResident(key string) *resident {
	return &resident{key: key, recorded: map[string]bool{}, client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
}

// asked is what became of what was asked in a while.
type asked struct {
	took   latency.Histogram
	of     map[string]*latency.Histogram // by what was asked
	failed map[string]int
}

func (a *asked) String() string {
	text := fmt.Sprintf("%d asked, p50 %v, p99 %v, at most %v", a.took.Count(), a.took.Quantile(0.5).Round(10*time.Microsecond), a.took.Quantile(0.99).Round(10*time.Microsecond), a.took.Max().Round(10*time.Microsecond))
	for _, w := range wants {
		if h := a.of[w.name]; h != nil {
			text += fmt.Sprintf("; %s p99 %v", w.name, h.Quantile(0.99).Round(10*time.Microsecond))
		}
	}
	return text
}

// A want is a question, and what its answer has in it. A number stands where %d is.
type want struct {
	name, path, body, answer string
	decisions                []bool
}

const (
	wantAllow = `{"decision":true}`
	wantDeny  = `{"decision":false}`
)

// wants is what the resident asks, in this order again and again: everything that a PEP
// does in a tenant of its own. The last depends on what the root forbids.
var wants = func() []want {
	authzen := func(action, more string) string {
		return `{"subject":{"type":"agent","id":"a-%d"},"action":{"name":"` + action + `"},"resource":{"type":"doc","id":"d"}` + more + `}`
	}
	native := func(action string) string {
		return `{"tenant_id":"calm","actor":{"actor_type":"agent","actor_id":"a-%d"},"action":"` + action + `","resource":{"type":"doc","id":"d"},"context":{}}`
	}
	const one, many = "/tenants/calm/access/v1/evaluation", "/tenants/calm/access/v1/evaluations"
	allow := want{"allow", one, authzen("read", ""), wantAllow, []bool{true}}
	deny := want{"deny", one, authzen("frozen", ""), wantDeny, []bool{false}}
	return []want{
		allow, deny,
		{"native allow", "/v1/authorize", native("read"), `{"allow":true}`, []bool{true}},
		{"native deny", "/v1/authorize", native("frozen"), `{"allow":false}`, []bool{false}},
		allow,
		{"batch", many, authzen("read", `,"evaluations":[{},{"action":{"name":"frozen"}},{},{"action":{"name":"frozen"}},{}]`),
			`{"evaluations":[` + strings.Join([]string{wantAllow, wantDeny, wantAllow, wantDeny, wantAllow}, ",") + `]}`, []bool{true, false, true, false, true}},
		deny,
		{"large", one, authzen("read", `,"context":{"note":"`+strings.Repeat("calm ", 4000)+`"}`), wantAllow, []bool{true}},
		{"approval", "/v1/authorize", native("ask"), `"status":"pending"`, []bool{true}},
		{"stop", one, authzen("stop", ""), "", nil},
	}
}()

// ask asks for so long, and waits for all answers.
func (r *resident) ask(t *testing.T, span time.Duration) *asked {
	a := &asked{of: map[string]*latency.Histogram{}, failed: map[string]int{}}
	for _, w := range wants {
		a.of[w.name] = &latency.Histogram{}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	const every = time.Second / residentRate
	tick := time.NewTicker(every)
	defer tick.Stop()
	start := time.Now()
	for due := time.Duration(0); due < span; due += every {
		for time.Since(start) < due { // one tick can stand for several that were missed
			<-tick.C
		}
		n := r.number.Add(1)
		w := wants[n%int64(len(wants))]
		all.Go(func() {
			err := r.once(t.Context(), w, n)
			took := time.Since(start) - due
			mu.Lock()
			defer mu.Unlock()
			a.took.Record(took)
			a.of[w.name].Record(took)
			if err != nil {
				a.failed[err.Error()]++
			}
		})
	}
	all.Wait()
	if len(a.failed) > 0 {
		t.Errorf("of %d that the resident asked were not answered: %.2000s", a.took.Count(), tallied(a.failed))
	}
	return a
}

// once asks, and keeps what must be on record.
func (r *resident) once(ctx context.Context, w want, n int64) error {
	began := time.Now()
	request, err := r.request(ctx, http.MethodPost, w.path, strings.Replace(w.body, "%d", fmt.Sprint(n), 1))
	if err != nil {
		return err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return r.lost(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return r.lost(err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %d %.300s", w.name, answer.StatusCode, body)
	}
	text, decisions := string(body), w.decisions
	if w.answer == "" {
		if decisions, err = r.stops(text, began); err != nil {
			return err
		}
	} else if !strings.Contains(text, w.answer) {
		return fmt.Errorf("%s: %.300s", w.name, text)
	}
	r.keep(answer.Header.Get("X-Decision-Id"), decisions)
	return nil
}

// lost is an error of a connection, without its port.
func (r *resident) lost(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loose++
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return fmt.Errorf("no answer: %w", err)
}

func (r *resident) keep(id string, decisions []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, allow := range decisions {
		name := id
		if len(decisions) > 1 {
			name = fmt.Sprintf("%s.%d", id, n)
		}
		r.recorded[name] = allow
	}
}

// stops judges what is answered about what the root forbids: nobody is denied it before
// that is written, nor allowed it after somebody was denied.
func (r *resident) stops(text string, began time.Time) ([]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case text == wantAllow && !r.seen.IsZero() && began.After(r.seen):
		return nil, errors.New("stop: allowed again, and the root forbids it")
	case text == wantAllow:
		return []bool{true}, nil
	case text == wantDeny && r.written.IsZero():
		return nil, errors.New("stop: denied, and nobody forbids it")
	case text == wantDeny:
		if r.seen.IsZero() {
			r.seen = time.Now()
		}
		return []bool{false}, nil
	}
	return nil, fmt.Errorf("stop: %.300s", text)
}

func (r *resident) forbidding() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = time.Now()
}

// isForbidden asks about it once more: it may be in force only when nobody asks any longer.
func (r *resident) isForbidden() bool {
	_ = r.once(context.Background(), wants[len(wants)-1], r.number.Add(1))
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.seen.IsZero()
}

func (r *resident) request(ctx context.Context, method, path, body string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// send does something besides asking.
func (r *resident) send(ctx context.Context, method, path, body string) (status int, text string, err error) {
	request, err := r.request(ctx, method, path, body)
	if err != nil {
		return 0, "", err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(read), err
}

// compare looks for each answer on record, and for records that nobody was answered from.
func (r *resident) compare(t *testing.T, data string) {
	t.Helper()
	missing, unasked := len(r.recorded), 0
	only := record.Filter{Tenant: "calm", Kind: format.KindDecision}
	_, err := export.Tail(t.Context(), data, export.TailOptions{After: -1, Filter: only}, func(_ int64, line []byte) error {
		l, err := record.Parse(line)
		if err != nil {
			return err
		}
		allow, known := r.recorded[l.ID]
		switch {
		case !known:
			unasked++
		case l.Decision == nil || *l.Decision != allow:
			t.Errorf("%s is on record otherwise than it was answered: %s", l.ID, line)
		default:
			missing--
		}
		return nil
	})
	must(t, err)
	if missing > 0 {
		t.Errorf("of %d decisions that the resident was told %d are not on record any more", len(r.recorded), missing)
	}
	if unasked > 5*r.loose {
		t.Errorf("%d decisions are on record that nobody was told, and %d answers were lost", unasked, r.loose)
	}
}
