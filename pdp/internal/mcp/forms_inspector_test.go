package mcp_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/pdptest/browsertest"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

var (
	// formDialog is the component by which the Inspector asks a person.
	formDialog = regexp.MustCompile(`function ([\w$]+)\(\{request:[\w$]+,serverName:[\w$]+,queuePosition:`)
	// inspectorBegins is where the Inspector draws itself.
	inspectorBegins = regexp.MustCompile("(\\(0,[\\w$]+\\.createRoot\\)\\(document\\.getElementById\\(`root`\\)\\))(\\.render\\([^;]*)(\\(0,[\\w$]+\\.jsx\\)\\()[\\w$]+,\\{\\}\\)(\\]\\}\\)\\}\\)\\);)")
	// ofElsewhere is what a page asks other hosts for.
	ofElsewhere = regexp.MustCompile(`<link[^>]*//fonts[^>]*>`)
)

// startInspectorForms serves the web client of the Inspector, changed in one thing: in place of the whole it draws the dialog of
// a form, when show(number, params) is called.
func startInspectorForms(t *testing.T, others *mcptest.Others) (url string) {
	files := others.InspectorWeb()
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(files))
	serve := func(path, kind, text string) {
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte(text))
		})
	}
	page, err := fs.ReadFile(files, "index.html")
	orFail(t, err)
	serve("{$}", "text/html; charset=utf-8", ofElsewhere.ReplaceAllString(string(page), ""))
	names, err := fs.Glob(files, "assets/index-*.js")
	orFail(t, err)
	for _, name := range names {
		script, err := fs.ReadFile(files, name)
		orFail(t, err)
		dialog, begins := formDialog.FindSubmatch(script), inspectorBegins.FindSubmatch(script)
		if len(names) != 1 || dialog == nil || begins == nil {
			t.Fatalf("the Inspector is built in another way: %q, %q, %q", names, dialog, begins)
		}
		shows := fmt.Sprintf("const place=%s;window.show=(n,form)=>place%s%s%s,{request:{kind:`elicitation-form`,id:n,request:form,origin:`server-request`},"+
			"serverName:`form ${n}`,onElicitationRespond(){}})%s", begins[1], begins[2], begins[3], dialog[1], begins[4])
		serve(name, "text/javascript", strings.Replace(string(script), string(begins[0]), shows, 1))
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// readForm has the Inspector draw a form, and comes to what a person reads then: the lines of the dialog, and all that stands in
// fields, in lists that open, and in texts for screen readers.
const readForm = `(async (n, form) => {
	const until = async (holds) => {
		for (let frames = 0; !holds(); frames++) {
			if (frames > 500) throw new Error('not ' + holds + ' in ' + document.body.innerText);
			await new Promise(requestAnimationFrame);
		}
	};
	const dialog = () => document.querySelector('[role=dialog]');
	show(n, form);
	await until(() => dialog()?.innerText.includes('form ' + n + '\u201D'));
	const beside = [];
	for (const e of dialog().querySelectorAll('*'))
		for (const text of [e.value, e.title, e.placeholder, e.ariaLabel, e.alt]) if (typeof text === 'string') beside.push(text);
	for (const e of dialog().querySelectorAll('input[aria-haspopup=listbox]')) {
		const options = () => [...(document.getElementById(e.getAttribute('aria-controls'))?.querySelectorAll('[role=option]') ?? [])];
		e.click();
		await until(() => options().length > 0);
		beside.push(...options().map((option) => option.innerText));
	}
	return {Lines: dialog().innerText.split('\n'), Beside: beside};
})`

var (
	// asRec is how a message of the server rec begins, as the Inspector quotes it.
	asRec = regexp.MustCompile(`^“(Do not enter passwords or codes here )?\[rec asks(\] |; careful: )`)
	// ofGateway finds a text that reads as a line of the gateway.
	ofGateway = regexp.MustCompile(`(?i)^[^\w>]*(\[[^\]]*\basks\b|do not enter passwords)`)
)

// TestInspectorShowsHostileForms has the Inspector draw the forms of a hostile server that reach clients: a person sees all there
// is, the gateway's line is first, and nothing of the server reads as one of the gateway.
func TestInspectorShowsHostileForms(t *testing.T) {
	night.Npm(t)
	url := startInspectorForms(t, mcptest.Install(t))
	forms := night.Cases(hostileForms)
	inEras(t, func(t *testing.T, up string) {
		page := browsertest.Open(t, url)
		page.Expect("request elsewhere: blob:" + url) // of its own worker
		page.Goto("/")
		s := newSiege(t, camp{answers: posesHostileForms(up), change: relays})
		drawn := map[string]bool{} // clients of both eras are shown the same
		for _, era := range eras {
			alice := s.takesForms(era, nil)
			for n := range forms {
				params, _ := alice.posed(n)
				if params == nil || drawn[string(params)] {
					continue
				}
				drawn[string(params)] = true
				for _, wrong := range judgeDrawn(page, fmt.Sprint(era, n), params) {
					t.Errorf("form %d, for a %s client: %s in %s", n, era, wrong, params)
				}
			}
		}
		if t.Logf("%d of %d forms of a %s server are drawn", len(drawn), forms, up); len(drawn) < forms/2 {
			t.Error("these are few")
		}
	})
}

// judgeDrawn says what is wrong with a form as the Inspector draws it.
func judgeDrawn(page *browsertest.Page, name string, params jsontext.Value) (wrong []string) {
	drawn := browsertest.Eval[struct{ Lines, Beside []string }](page, readForm+"("+inText(name)+","+string(params)+")")
	lines := slices.DeleteFunc(drawn.Lines, func(line string) bool { return line == "" })
	if len(lines) < 2 || lines[0] != "Elicitation Request" || !asRec.MatchString(lines[1]) {
		return []string{fmt.Sprintf("%q begins without the gateway's line", lines)}
	}
	for n, text := range append(lines, drawn.Beside...) {
		if strings.ContainsFunc(text, hiddenRune) {
			wrong = append(wrong, fmt.Sprintf("%q has what cannot be seen", text))
		}
		if n != 1 && ofGateway.MatchString(text) {
			wrong = append(wrong, fmt.Sprintf("%q reads as the gateway's", text))
		}
	}
	return wrong
}
