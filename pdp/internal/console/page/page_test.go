package page_test

import (
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/console/page"
)

func drawn(t *testing.T, v page.View) string {
	t.Helper()
	text, err := page.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func layout(title page.Label) page.Layout {
	return page.Layout{Title: title, Home: "/pdp/console", Now: page.MomentOf(now, now)}
}

func TestLogin(t *testing.T) {
	got := drawn(t, page.Login{Layout: layout("Log in"), OIDC: "/pdp/console/login/oidc", Next: `/approvals?x="><b>`})
	for _, want := range []string{
		`<title>Log in · policy-service</title>`, `href="/pdp/console/style.css"`, `href="/pdp/console/login/oidc"`,
		`action="/pdp/console/login"`, `name="next" value="/approvals?x=&#34;&gt;&lt;b&gt;"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
}

func TestMessage(t *testing.T) {
	got := drawn(t, page.Message{Layout: layout("Not found"), Heading: "Not found", Says: []page.Text{page.Of("<b>")}, Link: "/pdp/console/approvals", LinkText: "To the inbox"})
	if !strings.Contains(got, `<div><bdi class="text">&lt;b&gt;</bdi></div>`) {
		t.Error(got)
	}
}

func TestUnderWay(t *testing.T) {
	use := []page.UnderWay{{Decision: page.IDOf("01a1fdbe"), Origin: page.Word("pdp/eu-2"), Since: page.MomentOf(now, now), Was: true}}
	for name, view := range map[string]page.View{
		"approval":   page.Request{Layout: layout("Approval"), Terms: page.Terms{UnderWay: use}},
		"capability": page.Capability{Layout: layout("Capability"), Held: page.Held{UnderWay: use}},
	} {
		got := drawn(t, view)
		if !strings.Contains(got, "<dt>Under way</dt><dd>one use was under way, since <time") || !strings.Contains(got, "pdp/eu-2") || !strings.Contains(got, "by decision 01a1fdbe</dd>") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
