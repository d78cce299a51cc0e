package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// recorder fails in the way its name says.
type recorder func() error

func (r recorder) Record(context.Context, []pdp.Record) error { return r() }

func TestFailuresNeverAllow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		options pdp.Options
		want    int
	}{
		{"not recorded", pdp.Options{Recorder: recorder(func() error { return errors.New("disk full") })}, 503},
		{"panic", pdp.Options{Recorder: recorder(func() error { panic("a secret") })}, 500},
		{"runtime error", pdp.Options{Recorder: recorder(func() error { _ = []string{"a secret"}[len(t.Name()):][0]; return nil })}, 500},
		{"out of time", pdp.Options{Recorder: recorder(func() error { return context.DeadlineExceeded })}, 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			s := pdptest.Start(t, bundle(t), func(c *server.Config) {
				c.Program.PDP = test.options
				c.Program.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			for _, path := range []string{evaluationPath, authorizePath} {
				body := readQuestion
				if path == authorizePath {
					body = nativeQuestion
				}
				got := s.Post(path, body, "X-Request-ID", "r-7")
				if got.Status != test.want || strings.Contains(got.Body, "true") || strings.Contains(got.Body, "secret") || strings.Contains(got.Body, "disk") {
					t.Errorf("got %d %s, want %d without an answer and without internals", got.Status, got.Body, test.want)
				}
				if got.Header.Get("X-Request-ID") != "r-7" || got.Header.Get("X-Decision-Id") != "" || got.Header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("headers %v", got.Header)
				}
			}
			stopAndWait(t, s) // the log is ours alone from here on
			if text := log.String(); !strings.Contains(text, "request_id=r-7") || strings.Contains(text, "msg=\"a secret") || strings.Contains(text, "cause=\"a secret") {
				t.Errorf("the log should name the request and no value:\n%s", text)
			}
			if got := strings.Contains(log.String(), "disk full"); got != (test.name == "not recorded") {
				t.Errorf("why a record failed is the operator's to know, and nothing else:\n%s", log.String())
			}
		})
	}
}

// stopsByItself stops a server, which must not take all the time that it is given.
func stopsByItself(t *testing.T, s *pdptest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, s.Stop(ctx))
	if ctx.Err() != nil {
		t.Errorf("the stop took %v", patience)
	}
}

func stopAndWait(t *testing.T, s *pdptest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, s.Stop(ctx))
}
