package upstream

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/rpc"
)

// Tokens are kept by the bounds of [recent.Texts]: the newest stay, whatever comes meanwhile, and none is used after its end.
func TestTokensAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	kept := &tokens{TokenEndpoint: TokenEndpoint{Now: func() time.Time { return now }}}
	owner := func(n int) recent.Digest { return sha256.Sum256([]byte(fmt.Sprint(n))) }
	give := func(n int, lasts time.Duration) {
		kept.keep(owner(n), token{fmt.Sprint(n), now.Add(lasts)}, now.Add(lasts))
	}
	for n := range 4 * mostTokens {
		give(n, time.Hour)
		for before := max(0, n-mostTokens+1); before <= n; before += mostTokens / 4 {
			if got := kept.find(owner(before)); got != fmt.Sprint(before) {
				t.Fatalf("after %d: %d is %q", n, before, got)
			}
		}
	}
	if got := kept.find(owner(0)); got != "" {
		t.Errorf("the first is kept: %q", got)
	}
	now = now.Add(time.Hour)
	give(-1, time.Hour)
	for n := range 2 * mostTokens {
		give(-2-n, 31*time.Second)
	}
	now = now.Add(2 * time.Second)
	if got := kept.find(owner(-1 - 2*mostTokens)); got != "" {
		t.Errorf("a token that is about to end is used: %q", got)
	}
	give(1, time.Hour)
	if got := kept.find(owner(1)); got != "1" {
		t.Errorf("%q", got)
	}
}

func TestBackoff(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	b := backoff{now: func() time.Time { return now }}
	for n, want := range []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		if got := b.left("alice"); got != want*time.Millisecond {
			t.Errorf("after %d failures: %v", n, got)
		}
		b.failed("alice")
	}
	now = now.Add(10 * time.Second)
	if got := b.left("alice"); got != 20*time.Second {
		t.Errorf("ten seconds later: %v", got)
	}
	now = now.Add(forgetFailures)
	if got := b.left("alice"); got != 0 {
		t.Errorf("after all that time: %v", got)
	}
	b.failed("alice")
	if got := b.left("alice"); got != firstBackoff {
		t.Errorf("a first failure again: %v", got)
	}
	for n := range 3 * mostFailures {
		b.failed(fmt.Sprint(n))
	}
	if got := b.left("0"); got != 0 {
		t.Errorf("a principal is remembered behind so many others: %v", got)
	}
}

// A caller that takes lines back leaves their places to others, while the server reads nothing.
func TestOutboxFreesWhatIsWithdrawn(t *testing.T) {
	t.Parallel()
	o, m := newOutbox(), rpc.Message{Method: "notifications/message"}
	fill := func(most int64) {
		t.Helper()
		var all []*outLine
		for l := o.add(m, most); l != nil; l = o.add(m, most) {
			all = append(all, l)
		}
		if int64(len(all)) != most {
			t.Fatalf("%d lines of %d", len(all), most)
		}
		for _, l := range all {
			o.withdraw(l)
		}
	}
	for range 3 {
		fill(mostLines)
	}
	fill(mostOwnLines)
	for len(o.lines) < cap(o.lines) { // withdrawn lines are bounded too
		o.withdraw(o.add(m, mostLines))
	}
	if o.add(m, mostLines) != nil {
		t.Error("the outbox has no bound")
	}
}

// A message that is too large shows by its own members which call it answers, wherever its id stands.
func TestLongLines(t *testing.T) {
	x := strings.Repeat("x", 100)
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":3,"result":{"id":4,"x":"` + x + `"}}`:        "3",
		`{"result":{"x":"` + x + `\"}\\","id":4},"jsonrpc":"2.0","id":3}`:   "3",
		`{"result":[{"id":4}],"x":"` + x + `"}`:                             "",
		`{"id":3,"result":{"x":"` + x + `"},"id":4}`:                        "",
		`{"id":3,"x":"` + strings.Repeat("x", mostSkeleton) + `","id":4}`:   "",
		`{"id":3,"error":"` + strings.Repeat("x", 4*mostSkeleton) + `"}`:    "3",
		`{"id":3,"result":[` + strings.Repeat(`{"id":4},`, 1000) + `null]}`: "3",
	} {
		_, err := nextLine(bufio.NewReader(strings.NewReader(line+"\n")), len(line)/4)
		var long *longLine
		if !errors.As(err, &long) {
			t.Fatalf("%.50s: %v", line, err)
		}
		head, _ := rpc.ParseObject(long.head.text)
		if got := string(head.Get("id")); got != want {
			t.Errorf("%.50s answers %q", line, got)
		}
	}
}
