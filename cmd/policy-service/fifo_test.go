//go:build unix

package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/pdptest/inside/auth"
)

// TestAFIFOInPlaceOfAFileStopsNoServer puts FIFOs, to which nobody writes, in the place
// of files that a running server reads again.
//
// It takes a second: that often a server looks at its files.
func TestAFIFOInPlaceOfAFileStopsNoServer(t *testing.T) {
	t.Parallel()
	h := newHUP(t)
	key, err := exec.CommandContext(t.Context(), "policy-service", "keys", "add", "--data", h.data, "--name", "n").Output()
	must(t, err)
	// Each asks over a connection of its own, for which the certificate is looked at.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: h.authority.Pool}}
	withKey := &http.Client{Timeout: patience, Transport: bearing{transport, strings.TrimSpace(string(key))}}
	until := func(want int, more func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			got := h.ask(withKey)
			if got == want && more() {
				return
			}
			if got == 0 || time.Now().After(deadline) {
				t.Fatalf("it answers %d, want %d", got, want)
			}
		}
	}
	always := func() bool { return true }
	until(http.StatusOK, always)

	fifo(t, h.file)
	h.signal()
	h.await("configuration refused")

	h.write("", "stays")
	h.signal()
	h.await("configuration in force")

	_, rest, _ := strings.Cut(h.fixed, "key_file: ")
	keyFile, _, _ := strings.Cut(rest, ",")
	fifo(t, keyFile)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for h.stderr.Scan() && !strings.Contains(h.stderr.Text(), "the changed TLS files are not usable") {
		}
	}()
	until(http.StatusOK, func() bool {
		select {
		case <-told:
			return true
		default:
			return false
		}
	})

	fifo(t, filepath.Join(h.data, auth.KeyFile))
	until(http.StatusUnauthorized, always)
}

// fifo puts one in the place of a file.
func fifo(t *testing.T, name string) {
	t.Helper()
	must(t, syscall.Mkfifo(name+".fifo", 0o600))
	must(t, os.Rename(name+".fifo", name))
}

// bearing sends an API key.
type bearing struct {
	http.RoundTripper
	key string
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.RoundTripper.RoundTrip(r)
}
