package pep

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/conformance"
)

// named are the cases of these names, in their order.
func named(t *testing.T, names ...string) []Case {
	t.Helper()
	return fault{caught: strings.Join(names, " ")}.cases(t)
}

// outcomesOf are the outcomes of a report, by case; of several eras the last.
func outcomesOf(r conformance.Report) map[string]conformance.Outcome {
	all := map[string]conformance.Outcome{}
	for _, one := range r.Results {
		all[one.ID] = one.Outcome
	}
	return all
}

// A PEP whose every call is wrong in some other way gets its report, also after the PDP failed.
func TestWrongPEPGetsItsReport(t *testing.T) {
	t.Parallel()
	r, err := judgeStub(t, gateway, named(t, "default-tools-call", "default-tools-list", "pdp-reset", "nothing-late"), "executes twice")
	if err != nil {
		t.Fatal(err)
	}
	got := outcomesOf(r)
	if got["default-tools-call"] != conformance.Failed || got["default-tools-list"] != conformance.Passed || got["pdp-reset"] != conformance.Passed {
		t.Error(report(t, r))
	}
}

// A PEP that falls silent fails the case that silenced it. The rest is skipped, and what was found before is kept.
func TestSilentPEP(t *testing.T) {
	t.Parallel()
	silencing := named(t, "region-missing")[0]
	silencing.Advisory = true
	silencing.Steps = append(slices.Clone(silencing.Steps), Step{Ask: "tools-list"})
	cases := slices.Concat(named(t, "default-tools-list"), []Case{silencing}, named(t, "denied-tools-call"))
	var r conformance.Report
	for timeout := 100 * time.Millisecond; ; timeout *= 2 { // until it is time enough for a PEP that is not silent
		b := openBench(t)
		b.recovery = timeout // it stays silent, however long we wait
		url := startStub(t, b, gateway, "falls silent after a mapping error", "denies with -32401")
		var err error
		r, err = b.judgeAll(t.Context(), Target{URL: url, Resource: stubResource, Timeout: timeout}.complete(), cases)
		if err == nil && r.Results[0].Outcome == conformance.Passed {
			break
		}
		if timeout > patience {
			t.Fatalf("%v\n%s", err, report(t, r))
		}
	}
	first := r.Results[:3]
	if first[0].Outcome != conformance.Passed || first[1].Outcome != conformance.Failed || first[2].Outcome != conformance.Skipped || !strings.Contains(first[1].Failure, "the rest is skipped") {
		t.Error(report(t, r))
	}
	for _, one := range r.Results[3:] { // of the other era
		if one.Outcome != conformance.Skipped {
			t.Error(report(t, r))
		}
	}
}

// The report shows no token, wherever the PEP puts one.
func TestReportHidesTokens(t *testing.T) {
	t.Parallel()
	r, err := judgeStub(t, gateway, named(t, "denied-tools-call"), "quotes the token", "denies with -32401")
	if err != nil {
		t.Fatal(err)
	}
	if text := report(t, r); strings.Contains(text, "eyJ") || !strings.Contains(text, "(a token)") {
		t.Error(text)
	}
}

// A stream of events is looked at whole: also what comes before the response may hold what it must not.
func TestWholeStreamIsRead(t *testing.T) {
	t.Parallel()
	stream := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"secret-4711\"}}\n\n" +
		": a comment\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":1,\"error\":{\"code\":-3.2602e4,\"message\":\"no\"}}\r\n\r\n"
	a, err := readAnswer(&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader(stream))})
	if err != nil || a.code() != "-32602" || a.id != "1" {
		t.Errorf("%v: %s, %s of %s", err, a.code(), a.id, a.text)
	}
	if (Expectation{Hides: []string{"secret-4711"}}).checkText(a) == nil {
		t.Error("a secret in a notification is not seen")
	}
}

// An era in which a PEP greets nobody is judged if it lets calls through there, and no report is made of less than was
// wanted.
func TestForgottenEra(t *testing.T) {
	t.Parallel()
	cases := named(t, "denied-tools-call")
	r, err := judgeStub(t, gateway, cases, "forgets the new era")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 2 || r.Results[0].Outcome != conformance.Passed || r.Results[1].Outcome != conformance.Failed {
		t.Error(report(t, r))
	}
	b := openBench(t)
	url := startStub(t, b, gateway, "knows one era")
	for _, c := range []struct {
		eras    []Era
		results int
		says    string
	}{{nil, 1, ""}, {[]Era{Legacy}, 1, ""}, {[]Era{Legacy, Modern}, 0, "in the modern era"}} {
		r, err := b.judgeAll(t.Context(), Target{URL: url, Resource: stubResource, Eras: c.eras, Timeout: patience}.complete(), cases)
		if len(r.Results) != c.results || c.says == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %d results, %v", c.eras, len(r.Results), err)
		}
	}
}

// A PEP that sends without end is read up to a bound, and not until somebody loses patience.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	for contentType, more := range map[string]string{
		"application/json":               `{"jsonrpc":"2.0","id":1,"result":{}} `,
		"text/event-stream":              "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n",
		"text/event-stream; a=one-event": "data: {}\n",
		"text/event-stream; a=one-line":  "data: {} ",
	} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", contentType)
				for text := []byte(strings.Repeat(more, 1000)); r.Context().Err() == nil; {
					_, _ = w.Write(text)
				}
			}))
			defer s.Close()
			p, err := newPeer(Target{URL: s.URL, Timeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.send(t.Context(), Modern, outgoing{method: "ping", body: "{}"})
			if a.message != nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, %v", a.message, err)
			}
		})
	}
}

// The same PEP gets the same report, byte for byte.
func TestSameReport(t *testing.T) {
	t.Parallel()
	cases, err := Cases(planNames()...)
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return strings.HasPrefix(c.ID, "pdp-") }) // those wait, and so count on
	b := openBench(t)
	url := startStub(t, b, server, "adds the arguments", "denies with -32401", "quotes values")
	var first string
	for range 2 {
		r, err := b.judgeAll(t.Context(), Target{URL: url, Resource: stubResource, Timeout: patience}.complete(), cases)
		if err != nil {
			t.Fatal(err)
		}
		text := report(t, r)
		if r.OK() || first != "" && text != first {
			t.Errorf("%s\nis not\n%s", text, first)
		}
		first = text
	}
}

// A list whose pages have no end is no list.
func TestEndlessPages(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"leads back to the first page", "leads on for ever"} {
		_, err := judgeStub(t, gateway, named(t, "default-tools-call"), wrong)
		if err == nil || !strings.Contains(err.Error(), "the pages have no end") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
