package conformance_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// Two fresh starts of one bundle with the same clock answer everything with the
// same bytes, headers included. Page tokens and signed_metadata are made with
// random bytes and keys, and Date is the real clock's.
func TestTwoStartsAnswerAlike(t *testing.T) {
	t.Parallel()
	first, second := transcript(t), transcript(t)
	if len(first) < 1700 {
		t.Errorf("only %d exchanges", len(first))
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second start answers differently:\n%.4000s", diff)
	}
}

// transcript is every answer of a fresh server, in order.
func transcript(t *testing.T) []string {
	t.Helper()
	server := pdptest.Start(t, pdp.Dir("bundle"))
	var answers []string
	client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			var text string
			text, err = record(resp)
			answers = append(answers, scrubbed(text, server.Addr()))
		}
		return resp, err
	})}
	run(t, mode{}, server.URL, client)
	return answers
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// record reads an answer, and puts the body back.
func record(resp *http.Response) (string, error) {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var b strings.Builder
	fmt.Fprintln(&b, resp.Request.Method, resp.Request.URL.Path, resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name != "Date" && name != "Content-Length" { // that of a signature varies with the port
			fmt.Fprintln(&b, name, resp.Header[name])
		}
	}
	b.Write(body)
	return b.String(), err
}

var (
	random = regexp.MustCompile(`"(next_token|signed_metadata)":"[^"]+"`)
	keySet = regexp.MustCompile(`(?s)(/jwks\.json 200 OK).*`)
	etag   = regexp.MustCompile(`Etag \["[^]]+\]`)
)

// scrubbed takes out what may differ: the port, and what is made of random bytes.
// The key set is the random key itself; the ETag of the metadata covers its port.
func scrubbed(text, addr string) string {
	text = strings.ReplaceAll(text, addr, "ADDR")
	text = random.ReplaceAllString(text, `"$1":"RANDOM"`)
	text = etag.ReplaceAllString(text, "Etag")
	return keySet.ReplaceAllString(text, "$1")
}
