package page_test

import (
	"strings"
	"testing"
	"time"

	"policy-service/pdp/console/page"
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
