package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// While one issuer does not answer, a login at the issuer of a new configuration goes on, and a login that ends waits no
// longer.
func TestAnIssuerThatHangsHoldsUpItsOwnLoginsAlone(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	}))
	defer hangs.Close()
	defer close(release)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"issuer":"http://%[1]s","authorization_endpoint":"http://%[1]s/a","token_endpoint":"http://%[1]s/t","jwks_uri":"http://%[1]s/k"}`, r.Host)
	}))
	defer other.Close()
	p := newProvider(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.about(ctx, hangs.URL)
		ended <- err
	}()
	<-asked
	if got, err := p.about(t.Context(), other.URL); err != nil || got.endpoint.AuthURL != other.URL+"/a" {
		t.Fatalf("got %+v, %v", got, err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the other login waited for it: %v", err)
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
