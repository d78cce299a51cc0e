package telemetry

import (
	"net/http"
	"strings"
	"testing"
)

func TestTraceID(t *testing.T) {
	t.Parallel()
	const id, rest = "4bf92f3577b34da6a3ce929d0e0e4736", "-00f067aa0ba902b7-01"
	for header, want := range map[string]string{
		"00-" + id + rest: id, "01-" + id + rest + "-more": id, "00-" + id + rest + "-more": "", "ff-" + id + rest: "", "": "", "x": "",
		"00-" + strings.Repeat("0", 32) + rest: "", "00-" + strings.ToUpper(id) + rest: "", "00-" + id[1:] + rest: "",
	} {
		if got := TraceID(t.Context(), http.Header{"Traceparent": {header}}); got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
	if got := TraceID(t.Context(), http.Header{"Traceparent": {"00-" + id + rest, "00-" + id + rest}}); got != "" {
		t.Errorf("two headers: got %q", got)
	}
}
