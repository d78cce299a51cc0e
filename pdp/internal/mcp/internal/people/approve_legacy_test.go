package people

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/pdptest/mcptest"
)

// An answer to a page says whether the person has opened it. An answer to a form goes to the PDP as it is.
func TestApproveLegacyReads(t *testing.T) {
	for text, want := range map[string][2]bool{ // whether the answer counts as none: to a form, to a page
		`{"result":{"action":"accept","content":{"approve":true}}}`: {false, false},
		`{"result":{"action":"decline"}}`:                           {false, true},
		`{"result":{"action":"cancel"}}`:                            {true, true},
		`{"result":{"action":7}}`:                                   {false, true},
		`{"result":{}}`:                                             {false, true},
		`{"error":{"code":-32603,"message":"accept"}}`:              {true, true},
	} {
		m, fault := rpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,` + text[1:]))
		if fault != nil {
			t.Fatal(text)
		}
		for n, q := range []sealedQuestion{{}, {Page: true}} {
			if got := cancelled(q.read(m).answer); got != want[n] {
				t.Errorf("%s, %+v: %t", text, q, got)
			}
		}
	}
}

// The ids of the gateway's questions, the ids of servers' requests, and the states of clients of the modern era are three
// kinds, also in one session: none opens as another.
func TestApproveLegacyIDs(t *testing.T) {
	g := &People{o: Options{Ring: seal.Fresh(seal.Options{Resource: "r"})}}
	s, other := NewConversation("a session", g.o.Ring), NewConversation("another session", g.o.Ring)
	until := time.Now().Add(StateLife)
	sealed := func(purpose seal.Purpose, binding string) rpc.ID {
		t.Helper()
		text, err := seal.SealJSON(g.o.Ring, purpose, []byte(binding), sealedQuestion{Approval: "a"}, until)
		mcptest.Must(t, err)
		return rpc.StringID(text)
	}
	ours := sealed(seal.Approval, s.ID)
	if q, ok := g.Question(s, ours); !ok || q.Approval != "a" {
		t.Errorf("ours: %+v, %t", q, ok)
	}
	if got := ours.Text(); len(got) > rpc.MostID {
		t.Errorf("an id has %d bytes", len(got))
	}
	number, _ := rpc.ReadID(jsontext.Value(`7`))
	for name, id := range map[string]rpc.ID{
		"another session's": sealed(seal.Approval, other.ID), "nobody's": sealed(seal.Approval, ""), "a server's": sealed(seal.RequestID, s.ID),
		"a state": sealed(seal.RequestState, s.ID), "sealed as a session": sealed(seal.Session, s.ID), "a session": rpc.StringID(s.ID), "a number": number, "nothing": {},
	} {
		if q, ok := g.Question(s, id); ok {
			t.Errorf("%s: %+v", name, q)
		}
	}
	g.o.Ring = seal.Fresh(seal.Options{Resource: "r"})
	if _, ok := g.Question(s, ours); ok {
		t.Error("another gateway's")
	}
}
