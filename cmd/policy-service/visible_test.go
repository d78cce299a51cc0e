package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
)

// TestNoAnswerOfAServerActsOnTheTerminal asks a server whose every answer would.
func TestNoAnswerOfAServerActsOnTheTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b[2J\u009b31m\u202e"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "{\"title\":\"\\u001b[2J\\u009b31m\u202e\",\"status\":400,\"detail\":\"\\u001b[2J\\u009b31m\u202e\",\"decision\":\"%s\"}", hostile)
	}))
	t.Cleanup(server.Close)
	for _, args := range []string{
		"conformance URL", "conformance URL --json", "conformance --plan coaz URL", "health --url URL", "health --ready --url URL", "approvals list --server URL", "approvals show 1 --server URL",
		"log stats --server URL", "log tail --server URL", "log report --server URL", "log show 1 --server URL", "log checkpoint --server URL",
	} {
		var out, told strings.Builder
		code := command.Run(strings.Fields(strings.ReplaceAll(args, "URL", server.URL)), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &told})
		if text := out.String() + told.String(); code == cli.OK || text == "" || strings.ContainsAny(text, "\x1b\u009b\u202e") {
			t.Errorf("%s: exit %d, %q", args, code, text)
		}
	}
}
