package server_test

import (
	"strings"
	"testing"

	"policy-service/pdp/pdptest/written"
)

// A secret comes on record by no side door: as the name of a member that cannot be taken,
// under another spelling of its name, in a string that holds JSON, and in what people and
// programs say of it later.
func TestNoSecretComesOnRecordByASideDoor(t *testing.T) {
	t.Parallel()
	var log, stdout written.Text
	c := openCounter(t, public, logTo(&log), withStdout(0, &stdout))
	item := func(context string) string {
		return `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"},"context":` + context + `}`
	}
	status, text := c.do("pep", "POST", "/access/v1/evaluations", `{"evaluations":[`+strings.Join([]string{
		item(`{"sk_live_zebra":{"__entity":{"type":"a","id":"b"}}}`),
		item(`{"a":{"zebra~1 secret/7":{"__extn":{}}}}`),
		item(`{"arguments":{"api/key":"zebra-slash","pass\u200bword":"zebra-joiner","secret\tword":"zebra-tab","note":"zebra-slash and xzebra-joinery"}}`),
		item(`{"args":"{\"password\":\"zebra-inside\",\"list\":[\"{\\\"token\\\":\\\"zebra-deeper\\\"}\"]}","note":"zebra-inside zebra-deeper"}`),
		item(`{"args":"{\"password\":\"zebra-cut","more":"{\"password\":\"zebra-twice\",\"password\":\"x\"}","prose":"call {\"api_key\": \"zebra-prose\"} now"}`),
	}, ",")+`]}`)
	if status != 200 || !strings.Contains(text, `"status":400`) {
		t.Fatalf("got %d %s", status, text)
	}

	// What is said later repeats what was masked in the request, and in what was said for it.
	arguments := push + `,"password":"zebra crossing","args":"{\"token\":\"zebra-argument\"}"`
	const repeats = `it said (zebra crossing), xzebra-argumenty`
	id := c.asks("pep", tool("push", arguments)).Approval.ID
	c.says("mia", id, "decision", `{"decision":"deny","reason":"`+repeats+` and {\"api key\":\"zebra-own"}`, 200)
	p := c.program("asker")
	question := wants("push", arguments)
	said := strings.Replace(question, `"context":{`, `"context":{"credential":"zebra for it",`, 1)
	of := p.submits(said + "," + p.denied(question).denial())
	if of.status != 202 {
		t.Fatalf("got %d %s", of.status, of.text)
	}
	if got := p.cancels(of.Task.ID, `{"reason":"`+repeats+` and zebra for it"}`); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.text)
	}
	all := c.Get("/v1/approvals/"+id, "Authorization", c.key["mia"]).Body
	must(t, c.Stop(t.Context()))
	all += stdout.String() + log.String()
	if at := strings.Index(all, "zebra"); at >= 0 {
		t.Errorf("it is in …%s", all[max(0, at-300):min(len(all), at+60)])
	}
	for _, want := range []string{`"pointer":"/evaluations/0/context/masked:`, `/__entity"`, `it said (masked:`, `"event":"denied"`, `"event":"cancelled"`} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no %s in what was searched: the test proves nothing", want)
		}
	}
}
