package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"policy-service/pdp/pdptest/night"
)

// program is by the name that its Debian package gives it.
const program = "chromium-headless-shell"

// browser is the process, from the first page on.
var browser struct {
	once sync.Once
	ctx  context.Context
	err  error
	end  context.CancelFunc
}

// Main runs the tests of a package, and ends the browser, if they started one. It returns what TestMain exits with.
func Main(m *testing.M) int {
	code := m.Run()
	if browser.end != nil {
		browser.end() // it waits for the process, and for its directory to be gone
	}
	return code
}

// start returns the context of the browser, which it starts with the first test that needs one.
func start(t testing.TB) context.Context {
	t.Helper()
	night.Other(t, "browsers")
	if night.Race {
		t.Skip("the race detector sees nothing of what happens in a browser")
	}
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("there is no %s; install it", program)
		}
		t.Skipf("there is no %s; install it", program)
	}
	browser.once.Do(func() { browser.ctx, browser.end, browser.err = launch(path) })
	if browser.err != nil {
		t.Fatalf("%s does not start: %v", program, browser.err)
	}
	return browser.ctx
}

// launch starts the process with a directory of its own, which goes when the process ends. The library adds what root
// needs (--no-sandbox), keeps shared memory out of /dev/shm, and has the kernel end the browser with this process.
func launch(path string) (context.Context, context.CancelFunc, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("disable-gpu", true),
		// No name is resolved, and no address but loopback is one: a test reaches no other machine, whatever a page says.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.*.*.*, EXCLUDE localhost, EXCLUDE [::1]"),
		chromedp.Flag("force-device-scale-factor", "1"),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("lang", "en-US"),
		chromedp.Env("TZ=UTC"),
	)
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	stop := func() { end(); endAllocator() }
	started := make(chan error, 1)
	go func() { started <- chromedp.Do(ctx) }() // without an end of its own: the browser would end with it
	select {
	case err := <-started:
		if err != nil {
			stop()
			return nil, nil, err
		}
		return ctx, stop, nil
	case <-time.After(patience):
		stop()
		return nil, nil, errors.Join(<-started, fmt.Errorf("it was given %v", patience))
	}
}
