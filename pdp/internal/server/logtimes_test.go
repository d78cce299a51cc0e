package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/report"
	"policy-service/pdp/pdptest"
)

// hourly is a server that answered one question at each full hour of a day, n for the one of hour n, and at the end of it.
func hourly(t *testing.T) *counter {
	c := openCounter(t)
	c.Advance(pdptest.Now.Truncate(24*time.Hour).AddDate(0, 0, 1).Sub(pdptest.Now)) // midnight
	for hour := range 24 {
		c.asks("pep", strings.Replace(tool("push", push), `"id":"push"`, fmt.Sprintf(`"id":"hour-%d"`, hour), 1))
		c.Advance(time.Hour)
	}
	return c
}

// hours are those whose questions are in a text, in its order.
func hours(text string) (all []int) {
	for _, part := range strings.Split(text, `"id":"hour-`)[1:] {
		hour, _, _ := strings.Cut(part, `"`)
		n, _ := strconv.Atoi(hour)
		all = append(all, n)
	}
	return all
}

func (c *counter) hours(query string) []int {
	c.t.Helper()
	status, text := c.do("auditor", "GET", query, "")
	if status != http.StatusOK {
		c.t.Errorf("%s: got %d %s", query, status, text)
	}
	return hours(text)
}

func upTo(from, to int) (all []int) {
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

// A time, a day and an age mean the same everywhere, and since the same as from.
func TestTimesOverHTTP(t *testing.T) {
	t.Parallel()
	c := hourly(t)
	for span, want := range map[string][]int{
		"from=2h":                    {22, 23},
		"since=2h":                   {22, 23},
		"since=2026-01-03T22:00:00Z": {22, 23},
		"from=1d&to=22h":             {0, 1},
		"from=2026-01-03&to=22h":     {0, 1},
		"since=2026-01-03&to=2026-01-03T02:00:00Z": {0, 1},
		"from=2026-01-02&to=2026-01-03":            nil,
		"since=1d2h&to=2026-01-04":                 upTo(0, 24),
		"from=2026-01-04":                          nil,
		"from=2099-01-01":                          nil,
		"since=0s":                                 nil,
	} {
		for _, path := range []string{"/v1/decisions?order=oldest&", "/v1/log/export?", "/v1/log/export?proofs=true&"} {
			if got := c.hours(path + span + "&kind=decision"); !slices.Equal(got, want) {
				t.Errorf("%s%s: got %v, want %v", path, span, got, want)
			}
		}
		var r report.Report
		_, text := c.do("auditor", "GET", "/v1/log/report?"+span, "")
		must(t, json.Unmarshal([]byte(text), &r))
		if r.Population.Kinds["decision"] != int64(len(want)) {
			t.Errorf("the report of %s: %s", span, text)
		}
		status, text := c.do("auditor", "GET", "/v1/log/sample?seed=s&n=24&"+span, "")
		if (status == http.StatusOK) != (len(want) > 0) || !strings.Contains(text, fmt.Sprintf(`"population":%d,`, len(want))) && len(want) > 0 {
			t.Errorf("the sample of %s: got %d %.300s", span, status, text)
		}
	}
}

// However long a reader takes for the pages of an age, they are those of the moment of the first page.
func TestPagesOfAnAgeStandStill(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"newest", "oldest"} {
		c, query, got := hourly(t), "/v1/decisions?since=12h&to=2h&kind=decision&limit=3&order="+order, []int{}
		for cursor, pages := "", 0; ; pages++ {
			_, text := c.do("auditor", "GET", query+cursor, "")
			var page recordPage
			must(t, json.Unmarshal([]byte(text), &page))
			got = append(got, hours(text)...)
			if !page.More || pages == 9 {
				break
			}
			c.Advance(time.Hour)
			c.asks("pep", tool("hour-24", push))
			cursor = "&cursor=" + page.Next
		}
		want := upTo(12, 22)
		if order == "newest" {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", order, got, want)
		}
	}
	c := hourly(t)
	if _, text := c.do("auditor", "GET", "/v1/decisions?since=2026-01-03&limit=1", ""); strings.Contains(text[strings.LastIndex(text, `"next"`):], "-") {
		t.Errorf("a cursor without an age has a moment: %s", text)
	}
}

// An export of an age goes on as the one that began, when the age would mean another time.
func TestExportOfAnAgeGoesOn(t *testing.T) {
	t.Parallel()
	c := hourly(t)
	for _, query := range []string{"/v1/log/export?since=12h", "/v1/log/export?from=12h&to=1h&proofs=true", "/v1/log/export?since=12h&format=csv"} {
		whole, name := c.exported(query)
		if !strings.Contains(query, "csv") {
			if r := verify.Export(strings.NewReader(whole), verify.Options{}); !r.Verified() || !strings.Contains(whole, `"filter":{"from":"2026-01-03T`) {
				t.Errorf("%s: %+v", query, r)
			}
		}
		rows := strings.SplitAfter(whole, "\n")
		at := len(rows) / 2
		for strings.Contains(query, "proofs") && !strings.HasPrefix(rows[at], `{"export":"proof`) {
			at++
		}
		c.Advance(3 * time.Hour)
		rest, again := c.exported(query + "&checkpoint=" + name + "&after=" + sequenceIn(rows[at]))
		if want := strings.Join(rows[at+1:], ""); rest != want || again != name {
			t.Errorf("%s after %s: got %s\n%s, want %s\n%s", query, rows[at], again, rest, name, want)
		}
		c.Advance(-3 * time.Hour)
	}
}

// exported is an export, and its name.
func (c *counter) exported(query string) (text, name string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.URL+query, nil)
	must(c.t, err)
	r.Header.Set("Authorization", c.key["auditor"])
	answer, err := c.Client.Do(r)
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	must(c.t, err)
	if answer.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: got %d %s", query, answer.StatusCode, body)
	}
	return string(body), answer.Header.Get("X-Export-Checkpoint")
}
