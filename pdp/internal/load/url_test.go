package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// anyPDP answers as it is asked, until there were so many requests. Without a credential, it numbers its answers, which come
// in chunks.
func anyPDP(t *testing.T, credential string, until int64) *httptest.Server {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != credential || r.URL.RequestURI() != "/evaluate?x=1" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		call := asked.Add(1)
		answer := fmt.Sprintf(`{"decision":%t}`, strings.Contains(string(body), "alice") && call <= until)
		if credential == "" {
			answer = fmt.Sprintf(`{"call":"%09d","decision":true}`, call)
			_, _ = w.Write([]byte(answer[:9]))
			w.(http.Flusher).Flush()
			answer = answer[9:]
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return server
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const always = 1 << 62 // requests

// urlCase is how the program is called, and what it says: a pattern; of the error if it begins with "error: ".
type urlCase struct {
	args []string
	want string
}

// Any server can be measured, alone and beside another one, by its URL.
func TestAnyURL(t *testing.T) {
	night.Measures(t)
	one, other := anyPDP(t, "Bearer secret", always), anyPDP(t, "Bearer secret", always)
	requests, credential := file(t, "{\"subject\":\"alice\"}\n\n{\"subject\":\"bob\"}\n"), file(t, "secret\n")
	runAll(t, map[string]urlCase{
		"alone": {[]string{"-url", one.URL + "/evaluate?x=1", "-requests", requests, "-credential", credential},
			`^   load .*\n      2  url   +[1-9][0-9]* +-( +\S+s){5} +-\n$`},
		"beside another": {[]string{"-url", one.URL + "/evaluate?x=1", "-beside", other.URL + "/evaluate?x=1", "-requests", requests, "-credential", credential},
			`\n      2  other +[1-9].*\n      2  url   +[1-9].*\n      2  ratio +[0-9.]+ +-( +[0-9.]+){5}\n$`},
	})
}

// At a rate that takes little CPU, the program says what it finds, and what is wrong.
func TestURLAtARate(t *testing.T) {
	t.Parallel()
	one, fickle, numbers := anyPDP(t, "Bearer secret", always), anyPDP(t, "Bearer secret", 2), anyPDP(t, "", always)
	requests, credential := file(t, "{\"subject\":\"alice\"}\n\n{\"subject\":\"bob\"}\n"), file(t, "secret\n")
	runAll(t, map[string]urlCase{
		"what differs each time": {[]string{"-url", numbers.URL + "/evaluate?x=1", "-requests", requests, "-except", `"call":"[0-9]*"`, "-conns=", "-rates", "100", "-pid", strconv.Itoa(os.Getpid())},
			`^   load .*\n  100/s  url   +[1-9][0-9]* +[1-9][0-9.]+( +\S+s){5} +[1-9][0-9.]+\n$`},
		"unless all is compared": {[]string{"-url", numbers.URL + "/evaluate?x=1", "-requests", requests, "-except", `"call":""`}, "error: is right, to"},
		"not a pattern":          {[]string{"-url", one.URL, "-requests", requests, "-except", "("}, "error: ; try -except"},
		"an answer that changes": {[]string{"-url", fickle.URL + "/evaluate?x=1", "-requests", requests, "-credential", credential}, "error: is right, to"},
		"no credential":          {[]string{"-url", one.URL + "/evaluate?x=1", "-requests", requests}, `error: the answer is "HTTP/1.1 403 Forbidden"`},
		"no request":             {[]string{"-url", one.URL, "-requests", file(t, "\n")}, "error: there is no request in .*; try "},
		"no file":                {[]string{"-url", one.URL, "-requests", "nosuch"}, "error: nosuch: .*; try "},
		"no URL":                 {[]string{"-requests", requests}, "error: ; try -url URL"},
		"not a URL":              {[]string{"-url", "localhost", "-requests", requests}, "error: ; try http://"},
	})
}

// runAll runs the program for half a second in each case.
func runAll(t *testing.T, cases map[string]urlCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), append([]string{"-duration", "500ms", "-conns", "2"}, test.args...), &out)
			got := out.String()
			if err != nil {
				got = "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			want, isError := strings.CutPrefix(test.want, "error: ")
			if isError != (err != nil) || !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
