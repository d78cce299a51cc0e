package server_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

// found are the items of a query.
func (o *office) found(query string) (items int, body string) {
	o.t.Helper()
	var page recordPage
	body = o.get("/v1/decisions?" + query)
	must(o.t, json.Unmarshal([]byte(body), &page))
	return len(page.Items), body
}

// A text is found in the records of the caller's tenants, with what items inherit, and no longer once it is redacted. Of
// another tenant's text nothing can be seen, not even how it is not found.
func TestTextOverHTTP(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	ids := o.happen("initech")
	o.happen("globex")
	o.appendBatch(batchEntries("b", "initech", "key:initech-pep", `{"purpose":"the Q3 \u004caunch"}`, 4))
	for query, want := range map[string]int{
		"text=q3+launch": 3, // the batch, and two of its items
		"text=q3+launch&kind=decision&resource=doc-2": 1,
		"text=INITECH-item":                           2, // one was redacted
		"text=initech-channel":                        1,
		"text=" + ids[len(ids)-1]:                     1, // the record of the redaction
		"text=initech-item&to=2026-01-01":             0,
		"text=nothing+of+that":                        0,
	} {
		for _, name := range []string{"auditor", "initech-auditor"} {
			if got, body := o.as(name).found(query); got != want {
				t.Errorf("%s, as %s: %d records, want %d: %s", query, name, got, want, body)
			}
			rows, err := csv.NewReader(strings.NewReader(o.as(name).get("/v1/log/export?format=csv&" + query))).ReadAll()
			must(t, err)
			if rows = slices.DeleteFunc(rows[1:], func(row []string) bool { return row[1] == "" }); len(rows) != want { // those without content have no id
				t.Errorf("%s, as %s, exports %q", query, name, rows)
			}
		}
	}
	other := o.as("globex-auditor")
	_, theirs := other.found("text=q3+launch")
	_, none := other.found("text=q3+lunch")
	if got, _ := other.found("text=initech-item"); got != 0 || theirs != none {
		t.Errorf("another tenant gets %s, and of nothing %s", theirs, none)
	}
	replied(t, o.Do("POST", "/v1/decisions/b/redaction", `{"reason":"erasure"}`), 204)
	if got, body := o.found("text=q3+launch"); got != 0 {
		t.Errorf("a text that is gone is found: %s", body)
	}
}

// Without a time, a text is looked for in the last 90 days, and the answer says so. All pages are of the same 90 days.
func TestTextLooksNinetyDaysBack(t *testing.T) {
	t.Parallel()
	day, now := 24*time.Hour, clock.At(pdptest.Now)
	o := openOffice(t, func(c *server.Config) { c.Program.PDP.Now = now.Now })
	for range 3 {
		o.ask("initech", evaluationPath, tenantQuestion)
		now.Advance(89 * day)
		o.ask("initech", evaluationPath, tenantQuestion)
	}
	_, body := o.found("text=initech-item&limit=1")
	since := now.Now().Add(-90 * day).UTC().Format(time.RFC3339Nano)
	if !strings.Contains(body, fmt.Sprintf(`"since":%q`, since)) {
		t.Errorf("want since %s: %s", since, body)
	}
	all := 1
	for pages := 0; ; pages++ {
		var page recordPage
		must(t, json.Unmarshal([]byte(body), &page))
		if !page.More || pages == 9 {
			break
		}
		now.Advance(day)
		_, body = o.found("text=initech-item&limit=1&cursor=" + page.Next)
		all++
	}
	if all != 3 {
		t.Errorf("%d records of the last 90 days", all)
	}
	for query, want := range map[string]int{"since=400d": 6, "from=2020-01-01": 6, "to=80d": 2, "to=2000-01-01": 0} {
		got, body := o.found("text=initech-item&" + query)
		if got != want || strings.Contains(body, `"since"`) != strings.HasPrefix(query, "to") {
			t.Errorf("%s: %d records, want %d: %s", query, got, want, body)
		}
	}
}

// What is masked is found by no text: neither what was sent, nor what stands for it, nor how it was masked.
func TestTextIsNoOracleForMasks(t *testing.T) {
	t.Parallel()
	o := openOffice(t, func(c *server.Config) { c.DecisionLog.Mask = []string{"/context/pin"} })
	o.ask("initech", evaluationPath, strings.Replace(tenantQuestion, `"context":{`, `"context":{"pin":"Hunter-4711","note":"it is Hunter-4711, they say",`, 1))
	got, body := o.found("text=they+say")
	_, digest, _ := strings.Cut(body, `"pin":"masked:`)
	if got != 1 || len(digest) < 22 {
		t.Fatalf("found %d: %s", got, body)
	}
	for _, text := range []string{"Hunter", "4711", "masked", digest[:22], digest[:8], digest[15:22], "/context/pin", "string", "is  they", "is masked"} {
		if got, body := o.found("kind=decision&text=" + url.QueryEscape(text)); got != 0 {
			t.Errorf("%s is found: %s", text, body)
		}
	}
	if got, _ := o.found("kind=decision&text=PIN"); got != 1 { // the name is on record
		t.Error("the name of a masked value is not found")
	}
}

// A table begins with a byte order mark if that is asked for, in one piece or in two.
func TestCSVWithAByteOrderMark(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.happen("initech")
	whole := o.Get("/v1/log/export?format=csv&bom=true")
	same := "&checkpoint=" + whole.Header.Get("X-Export-Checkpoint") // the log may have grown
	if plain := o.get("/v1/log/export?format=csv" + same); whole.Body != "\ufeff"+plain || !strings.HasPrefix(plain, "sequence,") {
		t.Errorf("got %.40q and %.40q", plain, whole.Body)
	}
	rows := strings.SplitAfter(whole.Body, "\n")
	rest := o.get("/v1/log/export?format=csv&bom=true&after=3" + same)
	at := slices.IndexFunc(rows, func(row string) bool { return strings.HasPrefix(row, "4,") })
	if rest != strings.Join(rows[at:], "") {
		t.Errorf("the rest is %.80q", rest)
	}
}
