package mcp_test

import (
	"cmp"
	"errors"
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

	"policy-service/pdp/internal/mcp"
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

var consoleForm = regexp.MustCompile(`<form method="post" action="([^"]*/decision)"[^>]*>\s*<input type="hidden" name="token" value="([^"]*)"><input type="hidden" name="version" value="([^"]*)"><input type="hidden" name="shown" value="([^"]*)">`)

// atThePage has alice log in to the console, and decide on the page of the request.
func atThePage(decision string) act {
	return func(w *world, id string) {
		w.t.Helper()
		jar, err := cookiejar.New(nil)
		orFail(w.t, err)
		browser := visitor{client: &http.Client{Jar: jar}}
		sends := func(verb, to string, form url.Values) string {
			w.t.Helper()
			r, err := browser.sendTo(w.t.Context(), verb, to, form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
			orFail(w.t, err)
			text, err := io.ReadAll(r.Body)
			orFail(w.t, errors.Join(err, r.Body.Close()))
			if r.StatusCode != http.StatusOK {
				w.t.Fatalf("%s: %s %s", to, r.Status, text)
			}
			return string(text)
		}
		if page := sends(http.MethodPost, w.pdp.ConsoleURL()+"/login", url.Values{"key": {w.keys["alice"]}}); !strings.Contains(page, "alice") {
			w.t.Fatalf("alice is not logged in: %s", page)
		}
		m := consoleForm.FindStringSubmatch(sends(http.MethodGet, w.page(id), nil))
		if m == nil {
			w.t.Fatal("there is nothing to decide")
		}
		page, err := url.Parse(w.page(id))
		orFail(w.t, err)
		to, err := page.Parse(m[1])
		orFail(w.t, err)
		sends(http.MethodPost, to.String(), url.Values{"token": {m[2]}, "version": {m[3]}, "shown": {m[4]}, "decision": {decision}, "reason": {"I looked at it"}})
	}
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
