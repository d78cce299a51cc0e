package conformance

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// judgeStub asks a PDP over TLS, because discovery is held to https there.
func judgeStub(t *testing.T, handler http.Handler, cases []Case) Report {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	defer server.Close()
	report, err := judgeAll(t.Context(), Target{URL: server.URL, Client: server.Client(), Timeout: time.Minute}, cases)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func text(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The suite can be passed by a PDP that is not ours: every plan but native, whose
// shape is nobody else's.
func TestReferencePasses(t *testing.T) {
	t.Parallel()
	names := slices.DeleteFunc(planNames(), func(name string) bool { return name == "native" })
	cases, err := Cases(names...)
	if err != nil {
		t.Fatal(err)
	}
	if report := judgeStub(t, &stub{}, cases); !report.OK() || report.Count(Advised) > 0 {
		t.Error(text(t, report))
	}
}
