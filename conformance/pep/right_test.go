package pep

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"policy-service/conformance"
)

// PEPs that differ in what is left to them pass as well.
func TestOtherRightPEPsPass(t *testing.T) {
	t.Parallel()
	cases, err := Cases(planNames()...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := judgeStub(t, gateway, cases, "asks one by one, the last first", "leaves nulls out", "denies with results", "has one session at a time")
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Count(conformance.Advised) > 0 {
		t.Error(report(t, r))
	}
}

// What must be asked may lack a member that is null, and what holds nothing else; it may not have one more.
func TestAsks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{`{"context":{"v":null}}`, `{"context":{"v":null}}`, true},
		{`{"context":{"v":null}}`, `{"context":{}}`, true},
		{`{"context":{"v":null}}`, `{}`, true},
		{`{"context":{"v":null,"w":1}}`, `{}`, false},
		{`{"context":{"v":null}}`, `{"context":[]}`, false},
		{`{"context":{}}`, `{"context":{"v":null}}`, false},
		{`{"list":[null]}`, `{"list":[null]}`, true},
		{`{"list":[null]}`, `{"list":[]}`, false},
		{`{"list":[{"v":null}]}`, `{"list":[{}]}`, true},
		{`{"v":false}`, `{}`, false},
		{`{"v":1e2}`, `{"v":100.0}`, true},
		{`{"v":9007199254740993}`, `{"v":9007199254740992}`, false},
	} {
		want, err1 := parse([]byte(c.want))
		got, err2 := parse([]byte(c.got))
		if err1 != nil || err2 != nil || asks(want, got, true) != c.ok {
			t.Errorf("%s for %s: want %v (%v, %v)", c.got, c.want, c.ok, err1, err2)
		}
	}
}

// A URL that has a query keeps it, also where a token stands in it.
func TestTokenBesideQuery(t *testing.T) {
	t.Parallel()
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.RawQuery }))
	defer s.Close()
	p, err := newPeer(Target{URL: s.URL + "/mcp?tenant=a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(t.Context(), Modern, outgoing{method: "ping", body: "{}", token: "t", inQuery: true}); err != nil || got != "access_token=t&tenant=a" {
		t.Errorf("%q, %v", got, err)
	}
}
