//go:build unix

package auth

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

// Who verifies a token has the keys to himself, so one that waited would have all wait.
func TestAFIFOInPlaceOfAJWKSFileStopsNoVerification(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.ES256)
	j, file := fromFile(t, c, s)
	must(t, os.Remove(file))
	must(t, syscall.Mkfifo(file, 0o600))
	c.Advance(4 * time.Second)
	verified := make(chan error, 1)
	go func() {
		_, err := j.Verify(t.Context(), s.token(t, claims(c, nil), nil))
		verified <- err
	}()
	select {
	case err := <-verified:
		if err == nil {
			t.Error("the file is no file, and its key still good")
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for somebody to write to the FIFO")
	}
}
