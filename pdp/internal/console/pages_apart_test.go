package console_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rowsOf are the rows of a page of the inbox, as people read them.
func rowsOf(body string) (rows []string) {
	for _, row := range regexp.MustCompile(`(?s)<th scope="row".*?</th>`).FindAllString(body, -1) {
		rows = append(rows, strings.TrimPrefix(plain("<main>"+row), "> "))
	}
	return rows
}

// What is for the same differs at a glance: by arguments, also where these begin alike; and what is the same says so. No row
// says "and 1 more" where the one has room.
func TestInboxTellsApart(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	long := strings.Repeat("x", 100)
	for _, context := range []string{
		`{"arguments":{"branch":"main","path":"` + long + `/a","n":1},"justification":"The \"first\"","on_behalf_of":[{"type":"user","id":"bob"},{"type":"user","id":"eve"},{"type":"user","id":"kim"}]}`,
		`{"arguments":{"branch":"main","path":"` + long + `/b","n":1},"purpose":"the second"}`,
		`{"arguments":{"branch":"next","path":"` + long + `/a","n":1,"force":true}}`,
		`{"arguments":{"branch":"main","path":"` + long + `/a","n":1},"justification":{"why":"also"},"purpose":"the second"}`,
	} {
		p.asks("push", context)
		p.Advance(time.Minute)
	}
	alice := p.logIn("alice")
	has(t, alice.page("/console/approvals?tab=said"), "Nothing is here yet.")
	has(t, p.logIn("mia").page("/console/approvals?resource=none"), "Nothing matches the filter.")
	got := rowsOf(alice.page("/console/approvals"))
	const who, of = "agent/agent-release tool.invoke tool/push", "agent-release wants to use push."
	for n, want := range []string{
		who + ` for user/bob , user/eve and 1 more branch : " main " no force path : " … xxxxxxxxx/a " no context.purpose says " The \" first \" " ` + of,
		who + ` branch : " main " no force path : " … xxxxxxxxx/b " says " the second " ` + of,
		who + ` branch : " next " force : true path : " … xxxxxxxxx/a " no context.purpose ` + of,
	} {
		if n >= len(got) || strings.ReplaceAll(got[n], " :", ":") != strings.ReplaceAll(want, " :", ":") {
			t.Errorf("row %d: got\n%q, want\n%q", n, strings.Join(got, "\n"), want)
		}
	}
	has(t, got[3], `says " { \" why \" : \" also \" } "`)

	p.asks("other", `{"arguments":{"n":1},"trace":1}`)
	if rows := rowsOf(alice.page("/console/approvals?resource=other")); len(rows) != 1 || strings.Contains(rows[0], "the same") {
		t.Errorf("got %q", rows)
	}

	p.asks("pay", `{"arguments":{"amount":10000},"purpose":"one"}`)
	p.asks("pay", `{"arguments":{"amount":10000},"purpose":"two"}`)
	if rows := rowsOf(alice.page("/console/approvals?resource=pay")); len(rows) != 2 || !strings.Contains(rows[0], "10000") || !strings.Contains(rows[1], "10000") {
		t.Errorf("which differ by a purpose alone: got %q", rows)
	}
}

// A page has room for its rows, whatever marks their texts need, and no row is lost between two pages.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	want := map[string]bool{}
	for n := range 60 {
		hidden := strings.Repeat(`\u202e\u200b `, 60)
		want[p.asks(fmt.Sprintf("%s%d", strings.Repeat("\u202e ", 30), n), fmt.Sprintf(`{"arguments":{"%s%d":"%[1]s"},"justification":"%[3]s"}`, hidden, n, strings.Repeat(`\"`, 200)))] = true
		p.Advance(time.Millisecond)
	}
	alice := p.logIn("alice")
	link, next := regexp.MustCompile(`href="/pdp/console/approvals/([^"]+)" data-row`), regexp.MustCompile(`href="([^"]+)" rel="next"`)
	pages, seen := 0, map[string]bool{}
	for at := "/console/approvals"; at != ""; pages++ {
		body := alice.page(at)
		if len(body) > 200<<10 {
			t.Errorf("%s has %d bytes", at, len(body))
		}
		for _, row := range link.FindAllStringSubmatch(body, -1) {
			if seen[row[1]] || !want[row[1]] {
				t.Errorf("%s is there twice", row[1])
			}
			seen[row[1]] = true
		}
		at = ""
		if found := next.FindStringSubmatch(body); found != nil {
			at = strings.ReplaceAll(found[1], "&amp;", "&")
		}
	}
	if len(seen) != len(want) || pages < 3 {
		t.Errorf("on %d pages there are %d", pages, len(seen))
	}
}
