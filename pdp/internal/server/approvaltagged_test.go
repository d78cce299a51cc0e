package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest"
)

// tagged asks for a page as a person, with the tags that they have.
func (c *counter) tagged(who, query string, tags ...string) pdptest.Response {
	c.t.Helper()
	headers := []string{"Authorization", c.key[who]}
	for _, tag := range tags {
		headers = append(headers, "If-None-Match", tag)
	}
	return c.Do("GET", "/v1/approvals"+query, "", headers...)
}

// A page has a tag that changes with the page as the caller sees it, and with nothing else.
func TestTagOfAPage(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	first := c.filed("bot")
	was := c.tagged("mia", "")
	tag := was.Header.Get("ETag")
	if was.Status != 200 || tag == "" {
		t.Fatalf("got %d %v", was.Status, was.Header)
	}
	same := func(name, who, query string, tags ...string) {
		t.Helper()
		if got := c.tagged(who, query, tags...); got.Status != http.StatusNotModified || got.Body != "" || got.Header.Get("ETag") != tag {
			t.Errorf("%s: got %d %v %s", name, got.Status, got.Header, got.Body)
		}
	}
	same("the tag", "mia", "", tag)
	same("a weak one", "mia", "?status=pending&order=oldest", "W/"+tag)
	same("one of two", "mia", "", `"other", `+tag)
	other := c.filed("bot2")
	c.says("mia", other, "decision", no, 200)
	same("after what came and went", "mia", "", tag)
	for name, got := range map[string]pdptest.Response{
		"another page":      c.tagged("mia", "?status=all", tag),
		"another person":    c.tagged("eve", "", tag),
		"another tag":       c.tagged("mia", "", `"other"`),
		"with time to wait": c.tagged("mia", "?status=all&wait=30s", tag),
	} {
		if now := got.Header.Get("ETag"); got.Status != 200 || now == "" || (now == tag) != (name == "another tag") {
			t.Errorf("%s: got %d %v", name, got.Status, got.Header)
		}
	}
	c.says("mia", first, "decision", no, 200)
	if got := c.tagged("mia", "", tag); got.Status != 200 || got.Header.Get("ETag") == tag {
		t.Errorf("then it is %d %v", got.Status, got.Header)
	}
}

// With a tag a request waits for another page: also for an empty one, and no longer than it asks for. What waits with
// another tag is another question.
func TestWaitForAnotherPage(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.filed("bot")
	tag := c.tagged("mia", "").Header.Get("ETag")
	wait := func(tags ...string) chan pdptest.Response {
		t.Helper()
		before, answered := c.Joined(), make(chan pdptest.Response, 1)
		go func() { answered <- c.tagged("mia", "?wait=30s", tags...) }()
		eventually(t, "it waits", func() bool { return c.Joined() == before+1 })
		return answered
	}
	one, equal := wait(tag), wait(tag)
	if n := c.Watches(); n != 1 {
		t.Errorf("%d look for equal questions", n)
	}
	if got := c.tagged("mia", "?wait=30s", `"another"`); got.Status != 200 || got.Header.Get("ETag") != tag {
		t.Errorf("with another tag: got %d %v", got.Status, got.Header)
	}
	if got := c.tagged("mia", "?wait=1ms", tag); got.Status != http.StatusNotModified {
		t.Errorf("when the time is up: got %d %s", got.Status, got.Body)
	}
	c.says("mia", id, "decision", no, 200)
	for _, answered := range []chan pdptest.Response{one, equal} {
		if got := <-answered; got.Status != 200 || got.Header.Get("ETag") == tag || !strings.Contains(got.Body, `"items":[]`) {
			t.Errorf("got %d %v %s", got.Status, got.Header, got.Body)
		}
	}
	empty := c.tagged("mia", "").Header.Get("ETag")
	next := wait(empty)
	want := c.filed("bot")
	if got := <-next; got.Status != 200 || !strings.Contains(got.Body, want) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// Ended are all but those that are pending, all are both, and the newest come first if they are asked for: across pages, too.
func TestEndedAndNewest(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	var ids, ended []string
	for n := range 7 {
		id := c.filed([]string{"bot", "bot2", "bot3"}[n%3] + string(rune('a'+n)))
		if ids = append(ids, id); n%2 == 0 {
			c.says("mia", id, "decision", []string{yes, no}[n/2%2], 200)
			ended = append(ended, id)
		}
	}
	all := func(query string) (got []string) {
		t.Helper()
		for cursor := ""; ; {
			items, next := c.inbox("mia", "?limit=2"+query+cursor)
			for _, one := range items {
				got = append(got, one.ID)
			}
			if cursor = "&cursor=" + next; next == "" {
				return got
			}
		}
	}
	for query, want := range map[string][]string{"&status=all": ids, "&status=ended": ended, "&status=all&voted=true": ended} {
		if got := all(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
		back := slices.Clone(want)
		slices.Reverse(back)
		if got := all(query + "&order=newest"); !slices.Equal(got, back) {
			t.Errorf("%s, the newest first: got %v, want %v", query, got, back)
		}
	}
	for _, query := range []string{"?status=over", "?order=up"} {
		if status, text := c.do("mia", "GET", "/v1/approvals"+query, ""); status != 400 {
			t.Errorf("%s: got %d %s", query, status, text)
		}
	}
}
