package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// The room of a body is used again as soon as the body was read: whatever else is asked at the same time, answers and
// records are of what each caller sent.
func TestBodiesStayApart(t *testing.T) {
	t.Parallel()
	const callers = 16
	each := night.Cases(120)
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data))
	// Bodies of one length differ in every place that an answer or a record has; some are too large for a room.
	note := func(caller, n int) string {
		return fmt.Sprintf("%02d-%03d-é-%s", caller, n, strings.Repeat(string(rune('a'+caller)), 10+n%3*9000))
	}
	question := func(note string) string {
		return fmt.Sprintf(`{"subject":{"type":"user","id":%q},"action":{"name":"write"},"resource":{"type":"doc","id":"plan","properties":{"p":[%q,{"é":%q}]}},"context":{"note":%q,"supported_obligations":["notification"]}}`, note, note, note, note)
	}
	var mu sync.Mutex
	sent := map[string]string{} // notes, by the ids of decisions
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := range each {
				note := note(caller, n)
				body, path, ids := question(note), evaluationPath, []string{""}
				switch n % 4 {
				case 1:
					path, ids = "/access/v1/evaluations", []string{".0", ".1"}
					body = strings.TrimSuffix(body, "}") + fmt.Sprintf(`,"evaluations":[{},{"context":{"note":%q,"supported_obligations":["notification"]}}]}`, note)
				case 2:
					path, ids = "/access/v1/search/subject", nil
					body = strings.Replace(body, fmt.Sprintf(`"id":%q`, note), `"ib":1`, 1)
				case 3:
					replied(t, s.Post(path, body+body), 400)
				}
				got := s.Post(path, body)
				if owed, quoted := strings.Count(got.Body, "about "), strings.Count(got.Body, "about "+note); got.Status != 200 || owed != len(ids) || quoted != len(ids) {
					t.Errorf("%.40s by %s: got %d %.200s", note, path, got.Status, got.Body)
				}
				mu.Lock()
				for _, id := range ids {
					sent[got.Header.Get("X-Decision-Id")+id] = note
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stopAndWait(t, s)

	found := 0
	shared := map[string]line{} // what a batch's items have in common
	for _, r := range lines(t, data) {
		if r.Kind == "batch" {
			shared[r.ID] = r
		}
		note := sent[r.ID]
		if r.Kind != "decision" {
			continue
		}
		batch, _, _ := strings.Cut(r.ID, ".")
		text, err := json.Marshal([]any{r.Request, shared[batch].Request, r.Obligations})
		must(t, err)
		if note == "" || r.Request.Subject["id"] != note || !strings.Contains(string(text), `{"é":"`+note+`"}`) || !strings.Contains(string(text), `"note":"`+note+`"`) || !strings.Contains(string(text), `about `+note) {
			t.Errorf("%s: got %.300s, want %.40s", r.ID, text, note)
		}
		found++
	}
	if found != len(sent) || found == 0 {
		t.Errorf("%d decisions are on record, of %d", found, len(sent))
	}
}
