package mcp_test

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/seal"
)

// hasten has calls wait for people as short as may be: it is for those that do so for nothing. What comes of a call that
// somebody agrees to while it waits would depend on who is quicker; such a call is for a gateway that is patient.
func hasten(c *mcp.Config) { c.Approvals.Wait = 100 * time.Millisecond }

// patient is one more gateway, which waits for people as long as may be.
func (w *world) patient() *siege {
	w.t.Helper()
	other := *w.siege
	other.config.Approvals.Wait = 25 * time.Second
	other.gateway, other.url = other.beside()
	return &other
}

// anyArguments has no policy read arguments, so that none fails on what Cedar has no word for.
var anyArguments = map[string]string{"people.cedar": peoplePolicies[:strings.Index(peoplePolicies, `@id("blocked")`)] + peoplePolicies[strings.Index(peoplePolicies, `@id("the-person")`):]}

// unmoved fails if more calls of a tool reached the server than did before, or somebody has said something of an approval
// request, or it waits no more.
func (w *world) unmoved(t testing.TB, after, tool, id string, before int) {
	t.Helper()
	if ran := w.forwarded(tool); len(ran) != before {
		t.Errorf("%s: the server got %q", after, ran[before:])
	}
	if a := w.approval(id); a.Status != "pending" || len(a.Said) != 0 || a.Used != 0 {
		t.Errorf("%s: it is %s, used %d times, and they say %q", after, a.Status, a.Used, w.votes(id))
	}
}

// ring has the keys of the gateways.
func (w *world) ring(t testing.TB, resource string) *seal.Ring {
	t.Helper()
	r, err := seal.Open(w.config.Seal.KeyFiles, seal.Options{Resource: resource, Now: w.now})
	orFail(t, err)
	return r
}

// principalOf is the key of who a client is, as the gateway logs it.
func (w *world) principalOf(t testing.TB, v *visitor) string {
	t.Helper()
	if got := v.call("never", `{}`); got.fault == nil {
		t.Fatal(got)
	}
	logged := strings.Split(w.logs.String(), `"principal":"`)
	key, _, ok := strings.Cut(logged[len(logged)-1], `"`)
	if len(logged) == 1 || !ok || key == "" {
		t.Fatal("no principal is logged")
	}
	return key
}

// boundTo is what the gateway binds states of a call to.
func boundTo(t testing.TB, principal, server, tool, arguments string) []byte {
	t.Helper()
	v, err := evaluation.ParseWithNulls(jsontext.Value(arguments), evaluation.DefaultLimits())
	orFail(t, err)
	sum := sha256.New()
	for _, part := range []string{principal, server, "tools/call", tool, ""} {
		sum.Write([]byte(base64.RawURLEncoding.EncodeToString([]byte(part)) + "."))
	}
	canonical, _ := v.Value().AppendCanonical(nil)
	sum.Write(canonical)
	return sum.Sum(nil)
}

// D23: what holds the same as the state of a question, sealed by the right keys for something else, is no state of that
// question; nor is one at a gateway with other keys. The story question-swapped has what a client swaps.
func TestAskAttackD23Sealed(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: hasten})
	alice := w.client("modern")
	const arguments = `{"n":1}`
	asked := stateOf(t, alice.call("confirm", arguments))
	id, yes := w.asks("confirm"), `{"`+asked.key()+`":`+saysYes+`}`
	principal := w.principalOf(t, alice)
	ring, bound := w.ring(t, siegeResource), boundTo(t, principal, "rec", "confirm", arguments)
	inside, ok := ring.Open(seal.Approval, bound, asked.State)
	if !ok {
		t.Fatal("the state does not open")
	}
	refused := func(name string, ring *seal.Ring, purpose seal.Purpose, binding, value []byte) {
		t.Helper()
		state, err := ring.Seal(purpose, binding, value)
		orFail(t, err)
		if got := alice.retry("confirm", arguments, inText(state), yes); got.fault == nil {
			t.Errorf("%s: %s", name, got)
		}
		w.unmoved(t, name, "confirm", id, 0)
	}
	for name, purpose := range map[string]seal.Purpose{
		"as a session": seal.Session, "as a server's": seal.RequestState, "as a cursor": seal.Cursor, "as an id": seal.RequestID, "as a subscription": seal.Subscription, "as a login": seal.Login,
	} {
		refused(name, ring, purpose, bound, inside)
	}
	refused("bound to nothing", ring, seal.Approval, nil, inside)
	refused("of another server", ring, seal.Approval, boundTo(t, principal, "other", "confirm", arguments), inside)
	refused("of another gateway", w.ring(t, "https://other.example/mcp"), seal.Approval, bound, inside)
	refused("of nothing", ring, seal.Approval, bound, nil)
	refused("of an empty object", ring, seal.Approval, bound, []byte(`{}`))
	var past map[string]jsontext.Value
	orFail(t, json.Unmarshal(inside, &past))
	past["exp"] = jsontext.Value("1")
	text, err := json.Marshal(past)
	orFail(t, err)
	refused("that has ended", ring, seal.Approval, bound, text)
	strangers := *w.siege
	strangers.config.Seal.KeyFiles = nil
	_, strangers.url = strangers.beside()
	strangers.person(nil).retry("confirm", arguments, inText(asked.State), yes).refused(t, -32602, "", "", "other keys:")
	w.unmoved(t, "other keys", "confirm", id, 0)
}
