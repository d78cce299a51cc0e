package upstream

import (
	"fmt"
	"testing"
	"time"
)

func TestTokensAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	kept := &tokens{from: &endpoint{TokenEndpoint: TokenEndpoint{Now: func() time.Time { return now }}}, kept: map[tokenOf]token{}}
	give := func(n int, lasts time.Duration) {
		kept.keep(tokenOf{principal: fmt.Sprint(n)}, token{fmt.Sprint(n), now.Add(lasts)}, now.Add(lasts))
		if len(kept.kept) > mostTokens {
			t.Fatalf("%d tokens are kept", len(kept.kept))
		}
	}
	for n := range 2 * mostTokens {
		give(n, time.Hour)
		if got := kept.find(tokenOf{principal: fmt.Sprint(n)}); got != fmt.Sprint(n) {
			t.Fatalf("%d: %q", n, got)
		}
	}
	now = now.Add(time.Hour)
	give(-1, time.Hour)
	for n := range mostTokens {
		give(-2-n, 31*time.Second)
	}
	now = now.Add(2 * time.Second)
	if got := kept.find(tokenOf{principal: fmt.Sprint(-1 - mostTokens)}); got != "" {
		t.Errorf("a token that is about to end is used: %q", got)
	}
	give(1, time.Hour)
	if got := kept.find(tokenOf{principal: "1"}); got != "1" || len(kept.kept) > mostTokens {
		t.Errorf("%q, %d are kept", got, len(kept.kept))
	}
}
