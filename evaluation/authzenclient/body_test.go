package authzenclient_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/pdptest"
)

// What somebody else wrote is sent as it is: null members, numbers and order included.
func TestDecideBody(t *testing.T) {
	t.Parallel()
	var asked []string
	c := newClient(t, stub(t, says(`{"decision":true,"evaluations":[{"decision":true},{"decision":true}]}`)),
		authzenclient.WithHTTPClient(&http.Client{Transport: bodies(&asked)}))
	const log = `"supported_obligations":["log"]`
	for body, want := range map[string]string{
		`{"subject":{"type":"a","id":"b"},"action":{"name":"c"},"resource":{"id":"e","type":"d"}}`:                   `{"subject":{"type":"a","id":"b"},"action":{"name":"c"},"resource":{"id":"e","type":"d"},"context":{` + log + `}}`,
		`{"context":{"z":null,"n":9007199254740993,"f":1.0,"supported_obligations":["x"]},"more":[null,{"a":null}]}`: `{"context":{"f":1.0,"n":9007199254740993,` + log + `,"z":null},"more":[null,{"a":null}]}`,
		`{"context":null}`: `{"context":{` + log + `}}`,
	} {
		asked = nil
		if u := c.DecideBody(t.Context(), []byte(body), []string{"log"}); u.Denied() || len(asked) != 1 || asked[0] != want {
			t.Errorf("%s: %v, sent\n%s, want\n%s", body, u, asked, want)
		}
	}
	asked = nil
	const batch = `{"subject":{"type":"a","id":"b"},"context":{"agent":null},"evaluations":[{"resource":{"type":"d","id":"e"},"context":null},{"context":{"z":null},"x":1}]}`
	const want = `{"subject":{"type":"a","id":"b"},"context":{"agent":null,` + log + `},"evaluations":[{"resource":{"type":"d","id":"e"},"context":null},{"context":{` + log + `,"z":null},"x":1}],"options":{"evaluations_semantic":"deny_on_first_deny"}}`
	all := c.DecideBatchBody(t.Context(), evaluation.DenyOnFirstDeny, []byte(batch), []string{"log"})
	if len(all) != 2 || !authzenclient.DischargeAll(t.Context(), nil, all...).Permitted() || len(asked) != 1 || asked[0] != want {
		t.Errorf("%v, sent\n%s, want\n%s", all, asked, want)
	}
}

// What two readers could see differently is not sent, and neither is what is no batch as one.
func TestDecideBodyRefuses(t *testing.T) {
	t.Parallel()
	var asked []string
	c := newClient(t, stub(t, says(`{"decision":true,"evaluations":[{"decision":true}]}`)),
		authzenclient.WithHTTPClient(&http.Client{Transport: bodies(&asked)}))
	for _, body := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{}{}`, `{"context":{},"context":{}}`, `{"context":{"a":1,"a":2}}`, `{"resource":{"id":"a","id":"b"}}`,
		"{\"action\":\"\xff\"}", `{"action":"\ud800"}`, `{"context":7}`, `{"context":[]}`,
		`{"options":{"unknown":["/context/a"]}}`, `{"evaluations":[{"options":{"unknown":[]}}]}`, `{"evaluations":[{"context":{},"options":{}}]}`, // nobody may act on what is possible
		`{"evaluations":[{"resource":{"id":"a","id":"b"}}]}`, `{"evaluations":[7]}`, `{"evaluations":[null]}`, `{"evaluations":[{"context":7}]}`,
		`{"evaluations":[{}],"options":{}}`, `{"evaluations":[]}`, `{"evaluations":{}}`, `{"evaluations":null}`,
	} {
		if u := c.DecideBody(t.Context(), []byte(body), nil); !u.Denied() || u.Err() == nil {
			t.Errorf("%q: %v", body, u)
		}
		all := c.DecideBatchBody(t.Context(), "", []byte(body), nil)
		if len(all) != 1 || !all[0].Denied() || all[0].Err() == nil {
			t.Errorf("%q: %v", body, all)
		}
	}
	// A batch asked about as one request would be decided by what its evaluations share.
	if u := c.DecideBody(t.Context(), []byte(`{"subject":{"type":"a","id":"b"},"action":{"name":"c"},"resource":{"type":"d","id":"e"},"evaluations":[{}]}`), nil); !u.Denied() || u.Err() == nil {
		t.Errorf("a batch: %v", u)
	}
	for _, u := range append(c.DecideBatchBody(t.Context(), "some", []byte(`{"evaluations":[{}]}`), nil), c.DecideBatchBody(t.Context(), "", []byte(`{"evaluations":[{}]}`), []string{"\xff"})...) {
		if !u.Denied() || u.Err() == nil {
			t.Errorf("%v", u)
		}
	}
	if len(asked) > 0 {
		t.Errorf("sent %s", asked)
	}
}

// One that presents an approval, wherever, is not sent again after it may have arrived.
func TestDecideBodyIsNotRepeated(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int64{
		`{}`: 2, `{"context":{"a":null}}`: 2, `{"context":{"approval":{"id":"a"}}}`: 1, `{"context":{"approval_id":"a"}}`: 1,
		`{"evaluations":[{}]}`: 2, `{"context":{"approval_id":"a"},"evaluations":[{}]}`: 1, `{"evaluations":[{},{"context":{"approval_id":"a"}}]}`: 1,
	} {
		c, s := scripted(t, []step{reset, yes}, nap)
		if strings.Contains(body, "evaluations") {
			c.DecideBatchBody(t.Context(), "", []byte(body), nil)
		} else {
			c.DecideBody(t.Context(), []byte(body), nil)
		}
		if got := s.asked.Load(); got != want {
			t.Errorf("%s: asked %d times, want %d", body, got, want)
		}
	}
}

// The real PDP decides what was written as it decides the request.
func TestDecideBodyOfRealServer(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, docs())
	c := newClient(t, s.URL)
	for id, permit := range map[string]bool{"d01": true, "d00": false} {
		body := `{"subject":{"type":"user","id":"u00"},"action":{"name":"read"},"resource":{"type":"doc","id":"` + id + `"},"context":{"x":null}}`
		if e := c.DecideBody(t.Context(), []byte(body), nil).Discharge(t.Context(), nil); e.Permitted() != permit || e.Err() != nil {
			t.Errorf("%s: %v", id, e)
		}
	}
	const batch = `{"subject":{"type":"user","id":"u00"},"action":{"name":"read"},"evaluations":[{"resource":{"type":"doc","id":"d01"}},{"resource":{"type":"doc","id":"d00"}},{"resource":{"type":"doc","id":"d01"}}]}`
	got := ""
	for _, u := range c.DecideBatchBody(t.Context(), evaluation.DenyOnFirstDeny, []byte(batch), nil) {
		got += letter(t, u.Discharge(t.Context(), nil).Decision())
	}
	if got != "PDS" {
		t.Errorf("got %s", got)
	}
}

// A context that is null is none, and what the batch shares still stands: with a context made of nothing in its place, the
// forbid would not see that the item is frozen.
func TestDecideBatchBodyKeepsWhatIsShared(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("any") permit(principal, action, resource);
@id("frozen") forbid(principal, action, resource) when { context has frozen && context.frozen };`,
	}))
	c := newClient(t, s.URL)
	for item, permit := range map[string]bool{`"context":null,`: false, ``: false, `"context":{"frozen":false},`: true} {
		body := `{"subject":{"type":"user","id":"u"},"action":{"name":"read"},"context":{"frozen":true},"evaluations":[{` + item + `"resource":{"type":"doc","id":"d"}}]}`
		all := c.DecideBatchBody(t.Context(), evaluation.DenyOnFirstDeny, []byte(body), []string{"log"})
		if e := authzenclient.DischargeAll(t.Context(), nil, all...); e.Permitted() != permit || e.First().Err() != nil {
			t.Errorf("%s: %v", item, e.First())
		}
	}
}
