package mcptest

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// LongReceipts is a way to a PDP that carries receipts for as long as a busy machine takes for them. The PDP's client gives them
// up after two seconds otherwise.
type LongReceipts struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l LongReceipts) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/v1/decisions/") {
		ctx, hangs := context.WithCancel(context.WithoutCancel(r.Context()))
		time.AfterFunc(time.Minute, hangs)
		r = r.WithContext(ctx)
	}
	return l.RoundTripper.RoundTrip(r)
}
