package console_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// long is a text that pages cut, with a word at its end.
const longEnd = "and then to production"

func longArgument(bytes int) string {
	return `{"arguments":{"command":"` + strings.Repeat("ls; ", bytes/4) + longEnd + `"},"justification":"Release 1.4"}`
}

// unsaid fails the test if anybody has said anything about an approval request.
func (p *pages) unsaid(id string) {
	p.t.Helper()
	got := p.Do(http.MethodGet, "/v1/approvals/"+id, "", "Authorization", "Bearer "+p.secret["gateway"])
	has(p.t, got.Body, `"status":"pending"`)
	hasNot(p.t, got.Body, `"said":[{`)
}

// A page that cut something leads to one that cuts nothing, and only that one approves. Deny needs no more than the first.
func TestPageThatCutsApprovesNothing(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice := p.logIn("alice")
	id := p.asks("deploy", longArgument(400))
	at := "/console/approvals/" + id
	body := alice.page(at)
	has(t, plain(body), "Not all is shown: 1 text is cut. Show all of it", "Approve Deny")
	has(t, body, `<a href="/pdp`+at+`?whole">Show all of it</a>`, `name="shown" value=""`)
	hasNot(t, body, longEnd, `class="more"`)

	approve := []string{"decision", "approve", "reason", "as agreed"}
	got := alice.says(body, "/decision", approve...)
	if got.Status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	p.unsaid(id)
	has(t, got.Body, longEnd, ">as agreed</textarea>", `role="alert"`)
	has(t, plain(got.Body), "You had not seen all of it; here it is whole. Read it, and approve again.")
	hasNot(t, plain(got.Body), "Not all is shown", "more character", "there is more", "too long and cut")

	// What else is wrong with a form of the whole page leaves it whole.
	missing := alice.says(alice.page(at+"?whole"), "/decision", "decision", "approve", "reason", " ")
	has(t, missing.Body, longEnd, "Write why: it goes on record.")

	if got = alice.says(got.Body, "/decision", approve...); got.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	has(t, plain(alice.page(at)), `Approved 15 min left`, "by console: as agreed")
	// Somebody clicks twice, and sees the first answer again.
	if twice := alice.says(missing.Body, "/decision", approve...); twice.Status != http.StatusSeeOther {
		t.Errorf("%d %s", twice.Status, twice.Body)
	}

	for decision, want := range map[string]string{"deny": "Denied", "delegate": "Waits for others"} {
		to := map[string]string{"delegate": `User::"lena"`}[decision]
		id = p.asks("deploy", strings.Replace(longArgument(400), "ls", decision, 1))
		got = alice.says(alice.page("/console/approvals/"+id), "/decision", "decision", decision, "reason", "no", "to", to)
		if got.Status != http.StatusSeeOther {
			t.Errorf("%s: %d %s", decision, got.Status, got.Body)
		}
		has(t, plain(alice.page("/console/approvals/"+id)), want)
	}
}

// Many differences are cut, too, though the value is not.
func TestPageThatCutsDifferencesApprovesNothing(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice, mia := p.logIn("alice"), p.logIn("mia")
	numbers := func(from int) string {
		var all []string
		for n := range 25 {
			all = append(all, fmt.Sprintf(`{"n":%d}`, from+n))
		}
		return `{"arguments":{"list":[` + strings.Join(all, ",") + `]}}`
	}
	id := p.asks("deploy", numbers(100))
	mia.says(mia.page("/console/approvals/"+id), "/decision", "decision", "approve", "reason", "yes")
	id = p.asks("deploy", numbers(200))
	at := "/console/approvals/" + id
	body := alice.page(at)
	has(t, plain(body), "Not all is shown: 1 text is cut.", "list[19].n : new: 219 last time: was: 119 and 5 more", `{"n": 224}`)
	got := alice.says(body, "/decision", "decision", "approve", "reason", "yes")
	if got.Status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	p.unsaid(id)
	has(t, plain(got.Body), "list[24].n : new: 224 last time: was: 124")
	hasNot(t, plain(got.Body), "and 5 more", "Not all is shown")
	if got = alice.says(got.Body, "/decision", "decision", "approve", "reason", "yes"); got.Status != http.StatusSeeOther {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

// A person who has to log in first gets to the whole page then.
func TestPageIsWholeAfterTheLogin(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	at := "/console/approvals/" + p.asks("deploy", longArgument(400)) + "?whole"
	nobody := &person{p, http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	got := nobody.get(at)
	if to, _ := url.QueryUnescape(got.Header.Get("Location")); !strings.HasSuffix(to, strings.TrimPrefix(at, "/console")) {
		t.Errorf("%d to %s", got.Status, to)
	}
}

// A request may have 64 KiB. A large argument can be read whole, and approved then.
func TestPageShowsALargeArgumentWhole(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice := p.logIn("alice")
	id := p.asks("deploy", longArgument(60_000))
	at := "/console/approvals/" + id
	if body := alice.page(at); len(body) > 200<<10 {
		t.Errorf("the page has %d bytes", len(body))
	}
	body := alice.page(at + "?whole")
	has(t, body[len(body)-5000:], "</html>")
	if !strings.Contains(body, longEnd) {
		t.Fatal("it is not whole")
	}
	if got := alice.says(body, "/decision", "decision", "approve", "reason", "all read"); got.Status != http.StatusSeeOther {
		t.Errorf("%d %.2000s", got.Status, got.Body)
	}
}

// The field that says all was shown is of one page of one session. Without it, or with another one, nothing is approved.
func TestForgedShown(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice, mia := p.logIn("alice"), p.logIn("mia")
	id := p.asks("deploy", longArgument(400))
	at := "/console/approvals/" + id
	to, cut := alice.form(alice.page(at), "/decision")
	_, all := alice.form(alice.page(at+"?whole"), "/decision")
	_, others := mia.form(mia.page(at+"?whole"), "/decision")
	if cut.Get("shown") != "" || len(all.Get("shown")) != 43 || all.Get("shown") != others.Get("shown") {
		t.Fatalf("shown is %q, %q and %q", cut, all, others)
	}
	for name, f := range map[string]struct {
		token, shown []string
		want         int
	}{
		"of a page that cuts":             {cut["token"], cut["shown"], http.StatusUnprocessableEntity},
		"not there":                       {cut["token"], nil, http.StatusUnprocessableEntity},
		"the right one, forged":           {cut["token"], all["shown"], http.StatusForbidden},
		"taken away":                      {all["token"], nil, http.StatusForbidden},
		"another one":                     {all["token"], []string{strings.Repeat("A", 43)}, http.StatusForbidden},
		"twice":                           {all["token"], []string{all.Get("shown"), all.Get("shown")}, http.StatusBadRequest},
		"with the token of somebody else": {others["token"], all["shown"], http.StatusForbidden},
	} {
		form := map[string][]string{"decision": {"approve"}, "reason": {"r"}, "version": all["version"], "token": f.token, "shown": f.shown}
		if got := alice.post(to, form); got.Status != f.want {
			t.Errorf("%s: %d %.500s", name, got.Status, plain(got.Body))
		}
		p.unsaid(id)
	}
}

// changing changes a word in the answers of an API, once it is told to.
type changing struct {
	http.RoundTripper
	from, to string
	on       atomic.Bool
}

func (c *changing) RoundTrip(r *http.Request) (*http.Response, error) {
	got, err := c.RoundTripper.RoundTrip(r)
	if err != nil || !c.on.Load() {
		return got, err
	}
	body, err := io.ReadAll(got.Body)
	_ = got.Body.Close()
	body = bytes.ReplaceAll(body, []byte(c.from), []byte(c.to))
	got.Body, got.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return got, err
}

// A form approves what its page showed. If that has changed, the form approves nothing, though its version is the same.
func TestPageApprovesWhatItShowed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"what is done":      {`"deploy"`, `"destroy"`},
		"how long it lasts": {`"valid_for":"`, `"valid_for":"2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &changing{from: change[0], to: change[1]}
			c := openCore(t, coreWith{api: func(real http.RoundTripper) http.RoundTripper { api.RoundTripper = real; return api }})
			id := c.waits("deploy")
			at := "/approvals/" + id
			mia := c.browser()
			mia.logIn("mia")
			fields := mia.fields(at, at+"/decision")
			approve := func() coreAnswer {
				return mia.send(at+"/decision", "decision", "approve", "reason", "r", "token", fields["token"], "version", fields["version"], "shown", fields["shown"])
			}
			api.on.Store(true)
			got := approve()
			got.is(t, "changed", http.StatusUnprocessableEntity)
			has(t, plain(got.Body), "You had not seen all of it; here it is whole.")
			c.undecided(id)
			api.on.Store(false)
			approve().is(t, "as it was", http.StatusSeeOther)
		})
	}
}
