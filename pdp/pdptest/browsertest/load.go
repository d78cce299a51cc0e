package browsertest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Loads does what leads to another document, waits until it is there and drawn, and wants the answer 200.
func (p *Page) Loads(do func()) {
	p.t.Helper()
	p.Answers(http.StatusOK, do)
}

// Answers is [Page.Loads] with another status.
func (p *Page) Answers(status int, do func()) {
	p.t.Helper()
	p.load(do)
	if got := p.Status(); got != status {
		p.t.Fatalf("answered with %d, not %d%s\n%s", got, status, p.where(), p.Text())
	}
}

func (p *Page) load(do func()) {
	p.t.Helper()
	before := p.watch.loads()
	do()
	limit := time.After(patience)
	for p.watch.loads() == before {
		select {
		case <-p.watch.changed:
		case <-limit:
			p.t.Fatalf("nothing was loaded within %v%s", patience, p.where())
		}
	}
	p.Settle()
}

// Settle waits until the page is drawn again: what waits for that, as autofocus does, is done then. A picture is drawn
// also where the page may run no script, which could wait for a frame.
func (p *Page) Settle() {
	p.t.Helper()
	draw := func() error {
		ctx, cancel := context.WithTimeout(p.ctx, patience/6)
		defer cancel()
		_, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Clip: &page.Viewport{Width: 1, Height: 1, Scale: 1}, OptimizeForSpeed: new(true),
		})
		return err
	}
	err := draw()
	for range 5 {
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
		err = draw() // a page that is left while it is drawn never is
	}
	p.must(err)
}

// Eval returns what an expression of JavaScript comes to in the page, also where the page may run none. A promise is
// waited for.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	value, err := run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("the browser: %s: %v%s", expression, err, p.where())
	}
	return value
}
