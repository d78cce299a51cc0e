package mcp_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp"
)

// elicitation is what a client is asked, as far as it is looked at.
type elicitation struct {
	Mode            string `json:"mode"`
	Message         string `json:"message"`
	URL             string `json:"url"`
	RequestedSchema struct {
		Properties map[string]struct {
			Type    string         `json:"type"`
			Title   string         `json:"title"`
			Default jsontext.Value `json:"default"`
		} `json:"properties"`
	} `json:"requestedSchema"`
	Meta struct {
		Original struct {
			Tool      string         `json:"tool"`
			Arguments jsontext.Value `json:"arguments"`
		} `json:"originalRequest"`
	} `json:"_meta"`
}

func elicitationOf(t testing.TB, params jsontext.Value) (e elicitation) {
	t.Helper()
	orFail(t, json.Unmarshal(params, &e))
	return e
}

// page is where an approval request stands in the console.
func (w *world) page(id string) string { return w.pdp.ConsoleURL() + "/approvals/" + id }

// browser is a browser in which somebody has logged in to the console.
type browser struct {
	w      *world
	client *http.Client
}

// atConsole logs somebody in with their key.
func (w *world) atConsole(who string) browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	orFail(w.t, err)
	b := browser{w, &http.Client{Jar: jar}}
	if page := b.post(w.pdp.ConsoleURL()+"/login", url.Values{"key": {w.keys[who]}}); !strings.Contains(page, who) {
		w.t.Fatalf("%s is not logged in: %s", who, page)
	}
	return b
}

func (b browser) get(at string) string {
	b.w.t.Helper()
	return b.read(b.client.Get(at))
}

// post sends a form as a page of the console does.
func (b browser) post(at string, form url.Values) string {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodPost, at, strings.NewReader(form.Encode()))
	orFail(b.w.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.read(b.client.Do(r))
}

func (b browser) read(r *http.Response, err error) string {
	b.w.t.Helper()
	orFail(b.w.t, err)
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	orFail(b.w.t, err)
	if r.StatusCode != http.StatusOK {
		b.w.t.Fatalf("%s: %s %s", r.Request.URL, r.Status, text)
	}
	return string(text)
}

var consoleForm = regexp.MustCompile(`<form method="post" action="([^"]*/decision)"[^>]*>\s*<input type="hidden" name="token" value="([^"]*)"><input type="hidden" name="version" value="([^"]*)"><input type="hidden" name="shown" value="([^"]*)">`)

// decide approves or denies on the page of a request.
func (b browser) decide(at, decision string) {
	b.w.t.Helper()
	m := consoleForm.FindStringSubmatch(b.get(at))
	if m == nil {
		b.w.t.Fatalf("there is nothing to decide at %s", at)
	}
	page, err := url.Parse(at)
	orFail(b.w.t, err)
	to, err := page.Parse(m[1])
	orFail(b.w.t, err)
	b.post(to.String(), url.Values{"token": {m[2]}, "version": {m[3]}, "shown": {m[4]}, "decision": {decision}, "reason": {"I looked at it"}})
}

// A client is asked in the ways that it says it takes, and by what the operator has named first. `elicitation: {}` is forms.
func TestPeopleAreAskedAsTheirClientTakes(t *testing.T) {
	t.Parallel()
	const page, form, nothing = "url", "form", ""
	takes := map[string][]string{
		`{}`: nil, `{"elicitation":{}}`: {form}, `{"elicitation":{"form":{}}}`: {form}, `{"elicitation":{"url":{}}}`: {page},
		`{"elicitation":{"form":{},"url":{}}}`: {form, page},
	}
	for _, channels := range [][]string{{form, page, "wait"}, {page, form, "wait"}, {"wait"}, {form}, {page}} {
		t.Run(fmt.Sprint(channels), func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: func(c *mcp.Config) { c.Approvals.Wait, c.Approvals.Channels = 100*time.Millisecond, channels }})
			var all sync.WaitGroup
			defer all.Wait()
			for capabilities, ways := range takes {
				want := nothing
				if n := slices.IndexFunc(channels, func(c string) bool { return slices.Contains(ways, c) }); n >= 0 {
					want = channels[n]
				}
				for _, era := range eras {
					v := w.saying(capabilities, era, nil)
					all.Go(func() {
						asked := nothing
						got := v.converse("confirm", `{"by":`+inText(era+capabilities)+`}`, func(params jsontext.Value) string {
							asked = cmp.Or(elicitationOf(t, params).Mode, form)
							return saysNothing
						})
						if asked != want || becomes(seenIn(got)) != "waits" {
							t.Errorf("%s, %s: it is shown %q, want %q: %s", era, capabilities, asked, want, got)
						}
					})
				}
			}
		})
	}
}
