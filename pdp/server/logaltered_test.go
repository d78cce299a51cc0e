package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/server"
)

// alteredLog is a data directory as a crash leaves it: a segment is sealed, and its
// digest is not on record. Then a record in it was altered.
func alteredLog(t *testing.T) string {
	t.Helper()
	from, data := t.TempDir(), t.TempDir()
	l, err := decisionlog.Open(from, decisionlog.Options{On: decisionlog.Hooks{Rotate: func(uint64, time.Duration) {
		must(t, os.CopyFS(data, os.DirFS(from))) // the writer waits, so the digest cannot be recorded meanwhile
	}}})
	must(t, err)
	err = l.Append(t.Context(), []decisionlog.Entry{{Kind: decisionlog.KindAdmin, Event: "told", Details: jsontext.Value(`{"to":"mallory"}`)}})
	must(t, err)
	must(t, l.Rotate(t.Context()))
	must(t, l.Close())
	must(t, os.Chmod(filepath.Join(data, decisionlog.KeyFile), 0o600))
	name := filepath.Join(data, decisionlog.LogDir, "00000001.db")
	content, err := os.ReadFile(name)
	must(t, err)
	if !bytes.Contains(content, []byte("mallory")) {
		t.Fatal("the record is not in the first segment")
	}
	must(t, os.Chmod(name, 0o600))
	must(t, os.WriteFile(name, bytes.ReplaceAll(content, []byte("mallory"), []byte("maynard")), 0o600))
	return data
}

// A segment that was altered before its digest was on record is told of, and what is
// asked is answered all the same.
func TestAlteredSegmentIsTold(t *testing.T) {
	t.Parallel()
	var log buffer
	s := pdptest.Start(t, telling(), withData(alteredLog(t)), func(c *server.Config) { c.Program.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	eventually(t, "it is told", func() bool { return strings.Contains(log.String(), "altered before its digest was on record") })
	if got := s.Get("/readyz"); got.Status != http.StatusOK || !strings.Contains(got.Body, `"status":"degraded"`) || !strings.Contains(got.Body, `"altered":1`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if got := s.Post(evaluationPath, readQuestion); got.Status != http.StatusOK {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if s.Recorded(decisionlog.EventSealed) {
		t.Error("its digest is on record")
	}
}
