package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// watch sees all events of a page, in their order, and keeps what went wrong. Its methods are safe for concurrent use.
type watch struct {
	changed chan struct{} // has something after each load and each fault

	main    cdp.FrameID
	origins []string
	dismiss func() // closes a dialog

	mu       sync.Mutex
	now      document
	coming   map[cdp.LoaderID]document // answered, and not yet shown
	loader   cdp.LoaderID
	loaded   int
	wrong    []string
	expected []string
}

// document is what the page shows.
type document struct {
	url    string
	status int
	header http.Header
}

func newWatch(main cdp.FrameID, origins []string) *watch {
	return &watch{
		changed: make(chan struct{}, 1), main: main, origins: origins,
		now: document{url: "about:blank"}, coming: map[cdp.LoaderID]document{},
	}
}

func (w *watch) document() document {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *watch) loads() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loaded
}

func (w *watch) faults() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong)
}

// see is called with each event of the page, in order.
func (w *watch) see(event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		w.request(e.Request.URL)
	case *network.EventWebSocketCreated:
		w.request(e.URL)
	case *network.EventResponseReceived:
		w.response(e)
	case *network.EventLoadingFailed:
		if !e.Canceled || e.BlockedReason != "" {
			w.fault("load failed: %s %s %s", e.Type, e.ErrorText, e.BlockedReason)
		}
	case *page.EventFrameNavigated:
		w.navigated(e)
	case *page.EventLifecycleEvent:
		if e.Name == "load" && e.FrameID == w.main && e.LoaderID == w.loader {
			w.arrived()
		}
	case *page.EventJavascriptDialogOpening:
		w.fault("dialog: %s %q", e.Type, e.Message)
		go w.dismiss() // not here: the answer comes the same way as this event
	case *page.EventWindowOpen:
		w.fault("window opened: %s", e.URL)
	case *log.EventEntryAdded:
		w.entry(e.Entry)
	case *runtime.EventConsoleAPICalled:
		w.fault("console: %s %s", e.Type, arguments(e.Args))
	case *runtime.EventExceptionThrown:
		w.fault("exception: %s %s", e.ExceptionDetails.Text, arguments([]*runtime.RemoteObject{e.ExceptionDetails.Exception}))
	case *audits.EventIssueAdded:
		if e.Issue.Code != audits.InspectorIssueCodePerformanceIssue { // advice
			details, _ := json.Marshal(e.Issue.Details)
			w.fault("issue: %s %s", e.Issue.Code, details)
		}
	case *inspector.EventTargetCrashed:
		w.fault("the page crashed")
	}
}

// seeBrowser makes what sees the pages that this one opens.
func (w *watch) seeBrowser(c *chromedp.Context) func(any) {
	self := c.Target.TargetID
	return func(event any) {
		if e, ok := event.(*target.EventTargetCreated); ok && e.TargetInfo.OpenerID == self {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.fault("window opened: %s", e.TargetInfo.URL)
		}
	}
}

func (w *watch) fault(format string, arguments ...any) {
	w.wrong = append(w.wrong, strings.TrimSpace(fmt.Sprintf(format, arguments...)))
	w.tell()
}

func (w *watch) request(to string) {
	origin := originOf(to)
	if origin != "about:" && !slices.Contains(w.origins, origin) && !slices.Contains(w.origins, anywhere) {
		w.fault("request elsewhere: %s", to)
	}
}

// originOf is scheme, host and port of a URL, or its scheme if it has no more.
func originOf(of string) string {
	u, err := url.Parse(of)
	switch {
	case err != nil:
		return of
	case u.Host == "":
		return u.Scheme + ":"
	}
	return u.Scheme + "://" + u.Host
}

// response keeps the answer to the page's own document, whose status the test judges. Anything else must be there.
func (w *watch) response(e *network.EventResponseReceived) {
	if e.Type == network.ResourceTypeDocument && e.FrameID == w.main {
		d := document{url: e.Response.URL, status: int(e.Response.Status), header: http.Header{}}
		for name, value := range e.Response.Headers {
			d.header.Set(name, fmt.Sprint(value))
		}
		w.coming[e.LoaderID] = d
	} else if e.Response.Status >= 400 {
		w.fault("load failed: %s %d %s", e.Type, e.Response.Status, e.Response.URL)
	}
}

func (w *watch) navigated(e *page.EventFrameNavigated) {
	if e.Frame.ID != w.main {
		return
	}
	w.loader = e.Frame.LoaderID
	answered := w.coming[w.loader]
	w.now = document{url: e.Frame.URL + e.Frame.URLFragment, status: answered.status, header: answered.header}
	if e.Type == page.NavigationTypeBackForwardCacheRestore { // it is there already, and says no more
		w.arrived()
	}
}

func (w *watch) arrived() {
	w.loaded++
	w.tell()
}

func (w *watch) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// entry judges a line of the browser's own log. What a server answered with is judged by the answer itself.
func (w *watch) entry(e *log.Entry) {
	if e.Source == log.EntrySourceNetwork && strings.Contains(e.Text, "the server responded with a status of") {
		return
	}
	if e.Level == log.EntryLevelError || e.Level == log.EntryLevelWarning {
		w.fault("log: %s: %s %s", e.Source, e.Text, e.URL)
	}
}

func arguments(all []*runtime.RemoteObject) string {
	var text []string
	for _, one := range all {
		if one != nil {
			text = append(text, strings.TrimSpace(string(one.Value)+" "+one.Description))
		}
	}
	return strings.Join(text, " ")
}
