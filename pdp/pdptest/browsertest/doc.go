// Package browsertest makes no promise: it is for the tests of this module alone. It opens pages in a real browser:
// Chromium without a window, of the Debian package chromium-headless-shell. A test package calls [Main]
// once, and each test opens pages with [Open]:
//
//	func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }
//
//	func TestApprove(t *testing.T) {
//		t.Parallel()
//		p := browsertest.Open(t, server.URL) // a browser of its own: no cookie is shared with another test
//		p.Goto("/console/approvals/" + id)
//		p.Type("as agreed")                  // by keys, into what has the focus
//		p.Loads(func() { p.Click("button", "Approve") })
//		if p.Clicks() != 1 {
//			t.Errorf("%d clicks", p.Clicks())
//		}
//	}
//
// What a person does is done as a person does it: [Page.Click] moves the mouse to where the control with that role and
// accessible name is, and fails if something covers it; [Page.Type] and [Page.Press] send keys to what has the focus. What
// leads to another document is done within [Page.Loads] or [Page.Answers], which wait for it, never for a time.
//
// A page is read by [Page.Tree] (the accessibility tree, as text), [Page.Text], [Page.Elements] (each element with the
// names of its attributes), [Page.Find], [Page.Box], [Page.InView], [Page.Focus], [Page.Screenshot] and, for anything
// else, [Eval] and [Call], which is any command of the DevTools protocol. [Page.Tab] opens another page of the same
// person: they share cookies.
//
// Every test fails by itself if one of its pages asks another origin than its own for anything, breaks a content security
// policy, writes to the console, throws, opens a dialog or another window, or if anything fails to load. A test that means
// to have that happen says so with [Page.Expect], and then fails if it does not; a second origin is let in by
// [Origins]. No browser here resolves any name or reaches any address but loopback.
//
// There is one browser process for a test binary. It ends with it. Tests are skipped without the browser, unless CI is
// "true", and under the race detector, which sees nothing of what happens in a browser.
package browsertest
