package browsertest

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
)

// patience is how long anything may take before a test fails instead of hanging.
const patience = time.Minute

// Page is one page of a browser. One goroutine uses it.
type Page struct {
	t       testing.TB
	ctx     context.Context
	origin  string
	options []Option
	watch   *watch
	clicks  int
	presses int
}

// An Option changes a page before it opens.
type Option func(*settings)

type settings struct {
	width, height  int64
	scale          float64
	media          []*emulation.MediaFeature
	print          bool
	script         bool
	anyCertificate bool
	origins        []string
}

// WithoutScript has the browser run no script of any page.
func WithoutScript() Option { return func(s *settings) { s.script = false } }

// Dark is a person who prefers a dark screen.
func Dark() Option { return Media("prefers-color-scheme", "dark") }

// Media sets a media feature, such as forced-colors or prefers-contrast.
func Media(feature, value string) Option {
	return func(s *settings) {
		s.media = append(s.media, &emulation.MediaFeature{Name: feature, Value: value})
	}
}

// Print has pages drawn as on paper.
func Print() Option { return func(s *settings) { s.print = true } }

// Size is that of the screen, in CSS pixels. It is 1280 by 800 without.
func Size(width, height int) Option {
	return func(s *settings) { s.width, s.height = int64(width), int64(height) }
}

// Origins may be asked as well: those of other servers that the test runs.
func Origins(origins ...string) Option {
	return func(s *settings) { s.origins = append(s.origins, origins...) }
}

// Anywhere is for a person who visits pages of others, too: any origin may be asked.
func Anywhere() Option { return Origins(anywhere) }

const anywhere = "*"

// AnyCertificate has the browser take the certificate of a test's own authority.
func AnyCertificate() Option { return func(s *settings) { s.anyCertificate = true } }

// Open opens a blank page in a browser without any cookies, which belongs to this test alone. Paths are those of origin,
// such as http://127.0.0.1:8180. When the test ends, the page closes, and what went wrong on it fails the test.
func Open(t testing.TB, origin string, options ...Option) *Page {
	t.Helper()
	return open(t, start(t), origin, options, chromedp.WithNewBrowserContext())
}

// Tab opens another page of the same person, as another tab: the two share cookies.
func (p *Page) Tab(more ...Option) *Page {
	p.t.Helper()
	options := append(append([]Option{}, p.options...), more...)
	return open(p.t, p.ctx, p.origin, options)
}

func open(t testing.TB, parent context.Context, origin string, options []Option, how ...chromedp.ContextOption) *Page {
	t.Helper()
	s := settings{width: 1280, height: 800, scale: 1, script: true}
	for _, option := range options {
		option(&s)
	}
	ctx, end := chromedp.NewContext(parent, how...)
	t.Cleanup(end)
	p := &Page{t: t, ctx: ctx, origin: origin, options: options}
	p.must(chromedp.Do(ctx)) // the first use is what the page lives by, so it has no time of its own
	p.watch = newWatch(p.target(), append(s.origins, origin))
	p.watch.dismiss = func() {
		_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	}
	p.must(chromedp.Listen(ctx, p.watch.see))
	p.must(chromedp.ListenBrowser(ctx, p.watch.seeBrowser(chromedp.FromContext(ctx))))
	t.Cleanup(p.judge)
	Call(p, audits.Enable, cdp.Empty{})
	Call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	Call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: s.height, DeviceScaleFactor: s.scale,
	})
	media := emulation.SetEmulatedMediaParams{Features: s.media}
	if s.print {
		media.Media = "print"
	}
	Call(p, emulation.SetEmulatedMedia, media)
	Call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !s.script})
	Call(p, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: s.anyCertificate})
	return p
}

// target is the page's id, which is that of its main frame, too.
func (p *Page) target() cdp.FrameID { return cdp.FrameID(chromedp.FromContext(p.ctx).Target.TargetID) }

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("the browser: %v%s", err, p.where())
	}
}

// where says which document a failure is about, and what went wrong before it.
func (p *Page) where() string {
	if p.watch == nil {
		return ""
	}
	text := "\non " + p.URL()
	for _, fault := range p.watch.faults() {
		text += "\nbefore: " + fault
	}
	return text
}

// Call sends a command of the DevTools protocol to a page.
func Call[P, R any](p *Page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.t.Fatalf("the browser does not do %s: %v%s", command.Method, err, p.where())
	}
	return result
}

// Goto opens a path of the page's origin, or any URL, and wants the answer 200.
func (p *Page) Goto(path string) {
	p.t.Helper()
	p.Refused(path, http.StatusOK)
}

// Refused opens a path as [Page.Goto] does, and wants another status.
func (p *Page) Refused(path string, status int) {
	p.t.Helper()
	to := path
	if strings.HasPrefix(path, "/") {
		to = p.origin + path
	}
	p.Answers(status, func() {
		Call(p, page.Navigate, page.NavigateParams{URL: to, TransitionType: page.TransitionTypeTyped})
	})
}

// GotoUnanswered opens a URL that no server answers, such as one of the scheme data.
func (p *Page) GotoUnanswered(url string) {
	p.t.Helper()
	p.load(func() {
		Call(p, page.Navigate, page.NavigateParams{URL: url, TransitionType: page.TransitionTypeTyped})
	})
}

// Reload loads the document again, and whatever led to it, past any cache.
func (p *Page) Reload() {
	p.t.Helper()
	p.Loads(func() { Call(p, page.Reload, page.ReloadParams{IgnoreCache: new(true)}) })
}

// Back goes back in the history, and waits for what is there.
func (p *Page) Back() {
	p.t.Helper()
	history := Call(p, page.GetNavigationHistory, cdp.Empty{})
	if history.CurrentIndex == 0 {
		p.t.Fatal("there is nothing to go back to" + p.where())
	}
	entry := history.Entries[history.CurrentIndex-1].ID
	p.load(func() {
		Call(p, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: entry})
	})
}

// URL is that of the document.
func (p *Page) URL() string { return p.watch.document().url }

// Path is the path of the document, with its query.
func (p *Page) Path() string {
	p.t.Helper()
	u, err := url.Parse(p.URL())
	p.must(err)
	return u.RequestURI()
}

// Status is what the document was answered with.
func (p *Page) Status() int { return p.watch.document().status }

// Header is one header of the document's answer.
func (p *Page) Header(name string) string { return p.watch.document().header.Get(name) }

// Cookies are those that the page's document would be asked for with.
func (p *Page) Cookies() []*network.Cookie {
	p.t.Helper()
	return Call(p, network.GetCookies, network.GetCookiesParams{}).Cookies
}
