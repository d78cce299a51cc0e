package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// serve serves pages by their paths until the test ends.
func serve(t *testing.T, pages map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if r.URL.Path == "/strict" {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
		}
		fmt.Fprintf(w, "<!doctype html><html lang=en><title>t</title><body>%s", page)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestFaults holds the package to its promise: each of these is reported. What is expected and is not reported fails.
func TestFaults(t *testing.T) {
	t.Parallel()
	other := serve(t, map[string]string{"/": "other"})
	for name, test := range map[string]struct{ path, page, fault string }{
		"request":     {"/", `<img alt="" src="` + other + `/">`, "request elsewhere: " + other},
		"name":        {"/", `<img alt="" src="http://example.org/">`, "request elsewhere: http://example.org/"},
		"frame":       {"/", `<iframe title=f src="` + other + `/"></iframe>`, "request elsewhere: " + other},
		"data":        {"/", `<iframe title=f src="data:text/html,a"></iframe>`, "request elsewhere: data:"},
		"missing":     {"/", `<img alt="" src=/missing>`, "load failed: Image 404"},
		"console":     {"/", `<script>console.log("said")</script>`, `console: log "said"`},
		"exception":   {"/", `<script>throw new Error("thrown")</script>`, "thrown"},
		"rejection":   {"/", `<script>Promise.reject(new Error("rejected"))</script>`, "rejected"},
		"dialog":      {"/", `<script>addEventListener("load", () => setTimeout(() => alert("hello"), 0))</script>`, `dialog: alert "hello"`},
		"policy":      {"/strict", `<script>1</script>`, "script-src"},
		"style":       {"/strict", `<p style="color: red">p`, "style-src"},
		"socket":      {"/", `<script>new WebSocket("ws://127.0.0.1:1/")</script>`, "request elsewhere: ws://127.0.0.1:1/"},
		"window":      {"/", `<script>open("/")</script>`, "window opened"},
		"unreachable": {"/", `<img alt="" src="http://127.0.0.1:1/">`, "load failed: Image net::ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := browsertest.Open(t, serve(t, map[string]string{test.path: test.page}))
			p.Expect(test.fault)
			p.Goto(test.path)
			for _, fault := range p.Faults() {
				if !strings.Contains(fault, test.fault) {
					p.Expect(fault) // one thing is often reported in several ways
				}
			}
		})
	}
}

const form = `<main><h1>Form</h1><form method=post action=/sent>
<label>Reason <textarea name=reason required autofocus></textarea></label>
<button>Approve</button><button name=deny>Deny</button></form>
<p id=said></p><div style="height: 3000px"></div><a href=/next>the next one</a></main>`

// post counts the posts that arrive at /sent, which leads on to /done.
func post(t *testing.T) (url string, posts *atomic.Int64) {
	posts = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			posts.Add(1)
			http.Redirect(w, r, "/done?"+r.FormValue("reason"), http.StatusSeeOther)
		case r.URL.Path == "/gone":
			http.NotFound(w, r)
		case r.URL.Path == "/":
			fmt.Fprint(w, `<!doctype html><html lang=en><title>t</title>`+form+`<script>document.title = "script ran"</script>`)
		default:
			fmt.Fprint(w, `<!doctype html><html lang=en><title>t</title><p>`+r.URL.Path)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, posts
}

func TestPerson(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]browsertest.Option{
		"script": nil, "no script": {browsertest.WithoutScript()}, "narrow": {browsertest.Size(390, 844)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, posts := post(t)
			p := browsertest.Open(t, url, options...)
			p.Goto("/")
			if title := browsertest.Eval[string](p, "document.title"); (title == "script ran") == (name == "no script") {
				t.Errorf("the title is %q", title)
			}
			if at := p.Focus(); at.Role != "textbox" || at.Name != "Reason" {
				t.Errorf("the focus is at %v", at)
			}
			if !p.InView(p.Find("button", "Approve")) || p.InView(p.Find("link", "next")) {
				t.Error("the button is not in view, or the link at the bottom is")
			}
			p.Type("as agreed")
			p.Loads(func() { p.Click("button", "Approve") })
			if p.Path() != "/done?as%20agreed" || p.Clicks() != 1 || posts.Load() != 1 {
				t.Errorf("%s after %d clicks, %d posts", p.Path(), p.Clicks(), posts.Load())
			}
			p.Back()
			if p.Path() != "/" {
				t.Errorf("back is %s", p.Path())
			}
			p.Loads(func() { p.Click("link", "the next one") })
			p.Refused("/gone", http.StatusNotFound)
		})
	}
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	url, posts := post(t)
	p := browsertest.Open(t, url, browsertest.WithoutScript())
	p.Goto("/")
	p.Type("by keys")
	p.Press("Enter") // a line break in the text, and nothing else
	if n := p.TabTo("button", "Deny"); n != 2 {
		t.Errorf("Deny is %d keys away", n)
	}
	p.Press("Shift+Tab")
	if at := p.Focus(); at.Name != "Approve" {
		t.Errorf("the focus is at %v", at)
	}
	p.Loads(func() { p.Press("Space") })
	if p.Clicks() != 0 || posts.Load() != 1 || !strings.HasPrefix(p.Path(), "/done?by%20keys") {
		t.Errorf("%s after %d clicks, %d posts", p.Path(), p.Clicks(), posts.Load())
	}
}

func TestDoubleClick(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": `<button onclick="document.getElementById('n').textContent += 'x'">b</button><p id=n></p>`})
	p := browsertest.Open(t, url)
	p.Goto("/")
	p.DoubleClick("button", "b")
	if got := p.Text(); !strings.Contains(got, "xx") || p.Clicks() != 2 {
		t.Errorf("%q after %d clicks", got, p.Clicks())
	}
}

func TestCovered(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": `<button>under</button><div style="position: fixed; inset: 0"></div>`})
	p := browsertest.Open(t, url)
	p.Goto("/")
	if p.InView(p.Find("button", "under")) {
		t.Error("a covered button counts as in view")
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": `<main id=m class=c><h1>Title</h1><p>A <b>bold</b> word.</p><a href=/>Home</a><button disabled>No</button></main>`})
	p := browsertest.Open(t, url, browsertest.Dark())
	p.Goto("/")
	want := []string{"html lang", "head", "title", "body", "main class id", "h1", "p", "b", "a href", "button disabled"}
	if got := p.Elements(); !slices.Equal(got, want) {
		t.Errorf("elements %q", got)
	}
	const tree = `RootWebArea "t" focused
  main
    heading "Title" level=1
    paragraph
      text "A "
      text "bold"
      text " word."
    link "Home"
    button "No" disabled
`
	if got := p.Tree(); got != tree {
		t.Errorf("tree\n%s", got)
	}
	if !browsertest.Eval[bool](p, `matchMedia("(prefers-color-scheme: dark)").matches`) {
		t.Error("not dark")
	}
	if picture := p.Screenshot(); !strings.HasPrefix(string(picture), "\x89PNG") {
		t.Error("no picture")
	}
}

// TestAlone has two people, and one with two tabs.
func TestAlone(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": `<script>document.cookie ||= "who=" + location.search.slice(1)</script>`})
	one, two := browsertest.Open(t, url), browsertest.Open(t, url)
	one.Goto("/?one")
	two.Goto("/?two")
	tab := one.Tab()
	tab.Goto("/?three")
	for p, want := range map[*browsertest.Page]string{one: "one", two: "two", tab: "one"} {
		if cookies := p.Cookies(); len(cookies) != 1 || cookies[0].Value != want {
			t.Errorf("%v, not %s", cookies, want)
		}
	}
}
