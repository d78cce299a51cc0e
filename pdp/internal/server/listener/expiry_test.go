package listener_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// The end of a certificate is told of once a day, from two weeks before it on, until the certificate is replaced.
func TestTheEndOfACertificateIsToldOf(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	a, other := pdptest.NewAuthority(t), pdptest.NewAuthority(t)
	a.Lifetime = 15*day + 12*time.Hour
	begun := time.Now()
	files := listener.TLSFiles{}
	files.CertFile, files.KeyFile = a.Server()
	cert, key := other.Server()
	synctest.Test(t, func(t *testing.T) {
		var log written.Text
		c, err := listener.Open(files, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		log.Take() // by the clock of this test, it is the year 2000 at the start
		c.Now = func() time.Time { return begun.Add(time.Since(start)) }
		ctx, stop := context.WithCancel(t.Context())
		go c.Watch(ctx)
		wants := func(after time.Duration, soon, expired int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			got := log.Take()
			if strings.Count(got, "expires soon") != soon || strings.Count(got, "has expired") != expired || strings.Count(got, "\n") != soon+expired {
				t.Errorf("got\n%s", got)
			}
		}
		wants(day+time.Hour, 0, 0)
		wants(2*day, 2, 0)
		wants(day, 1, 0)
		wants(14*day, 11, 3)
		if err := errors.Join(os.Rename(cert, files.CertFile), os.Rename(key, files.KeyFile)); err != nil {
			t.Fatal(err)
		}
		wants(day, 0, 0)
		if left := c.NotAfter().Sub(c.Now()); left < 300*day {
			t.Errorf("it ends in %v", left)
		}
		stop()
		synctest.Wait()
	})
}
