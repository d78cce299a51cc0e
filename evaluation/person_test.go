package evaluation_test

import (
	"strings"
	"testing"

	"policy-service/evaluation"
)

// alice is SHA-256 of https://login.example.com, NUL, alice, as `printf '…\0alice' | openssl dgst -sha256 -binary |
// basenc --base64url` prints it, without the padding.
const alice = "FXHqsY9kwJ3D-VGCERTWxRwJga9wBg8qm1ASiGA3emU"

func TestPersonOf(t *testing.T) {
	t.Parallel()
	const issuer = "https://login.example.com"
	if got := evaluation.PersonOf(issuer, "alice"); got != alice {
		t.Errorf("got %s, want %s", got, alice)
	}
	seen := map[string]bool{}
	for _, names := range [][2]string{{issuer, "alice"}, {issuer, "Alice"}, {issuer + "a", "lice"}, {issuer, ""}, {"", issuer + "alice"}} {
		person := evaluation.PersonOf(names[0], names[1])
		if len(person) != 43 || seen[person] {
			t.Errorf("%q is %s, which has another length, or is another person too", names, person)
		}
		seen[person] = true
	}
}

var bob, carol = evaluation.PersonOf("i", "bob"), evaluation.PersonOf("i", "carol")

// A person is 43 characters of base64url, and one text stands for one person, in both shapes, in a batch and beside it.
func TestContextPerson(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		value  string
		person string
		legal  bool
	}{
		"a person":             {`"` + alice + `"`, alice, true},
		"null":                 {`null`, "", true},
		"empty":                {`""`, "", false},
		"a number":             {`7`, "", false},
		"an object":            {`{"sub":"alice"}`, "", false},
		"two persons":          {`["` + alice + `","` + bob + `"]`, alice + " " + bob, true},
		"one in an array":      {`["` + alice + `"]`, "", false},
		"one twice":            {`["` + alice + `","` + alice + `"]`, "", false},
		"three":                {`["` + alice + `","` + bob + `","` + carol + `"]`, "", false},
		"one and nobody":       {`["` + alice + `",null]`, "", false},
		"one and no person":    {`["` + alice + `","bob"]`, "", false},
		"two in one text":      {`"` + alice + ` ` + bob + `"`, "", false},
		"padded":               {`"` + alice + `="`, "", false},
		"one short":            {`"` + alice[:42] + `"`, "", false},
		"one long":             {`"` + alice + `A"`, "", false},
		"base64":               {`"` + strings.Replace(alice, "-", "+", 1) + `"`, "", false},
		"hexadecimal":          {`"` + strings.Repeat("ab", 32) + `"`, "", false},
		"the same in other":    {`"` + alice[:42] + `V"`, "", false}, // the last character has two bits to spare
		"a line feed within":   {`"` + alice[:20] + `\n` + alice[20:] + `"`, "", false},
		"a line feed for one":  {`"` + alice[:42] + `\n"`, "", false},
		"characters of others": {`"` + alice[:40] + `äö"`, "", false},
	} {
		authzen := `{"subject":{"type":"agent","id":"a"},"action":{"name":"x"},"resource":{"type":"tool","id":"t"},"context":{"person":` + test.value + `}}`
		native := `{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"agent"},"action":"x","resource":{"type":"tool","id":"t"},"context":{"person":` + test.value + `}}`
		for shape, decode := range map[string]func(string, evaluation.Limits) (evaluation.Request, error){authzen: decodeAuthZEN, native: decodeNative} {
			r, err := decode(shape, evaluation.DefaultLimits())
			if test.legal && (err != nil || r.Person() != test.person) || !test.legal && !refusedAt(err, "/context/person", "not a person") {
				t.Errorf("%s: got %q, %s\n%s", what, r.Person(), told(err), shape)
			}
		}
		for place, body := range map[string]string{
			"/evaluations/0/context/person": `{"evaluations":[` + authzen + `]}`,
			"/context/person":               strings.Replace(authzen, "{", `{"evaluations":[{}],`, 1),
		} {
			b, err := evaluation.DecodeBatch([]byte(body), "", evaluation.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			item := b.Items[0]
			if test.legal && (item.Err != nil || item.Request.Person() != test.person) || !test.legal && (item.Err == nil || item.Err.Pointer != place) {
				t.Errorf("%s: got %q, %v\n%s", what, item.Request.Person(), item.Err, body)
			}
		}
	}
}

// What a policy about approval.decide sees of the way of a vote.
func TestWay(t *testing.T) {
	t.Parallel()
	for want, way := range map[string]evaluation.Way{
		`{"via":"api"}`:                          {},
		`{"via":"console"}`:                      {Via: evaluation.ViaConsole},
		`{"gateway":"key:gateway","via":"form"}`: {Via: evaluation.ViaForm, Gateway: "key:gateway"},
		`{"gateway":"key:b","via":"form"}`:       {Via: evaluation.ViaForm, Gateway: "key:b", Client: evaluation.NoClient},
		`{"gateway":"�","via":"form"}`:           {Via: evaluation.ViaForm, Gateway: "\xff"},
		`{"client":{"id":"�","type":"agent"},"gateway":"key:gateway","via":"form"}`: {Via: evaluation.ViaForm, Gateway: "key:gateway", Client: evaluation.Ref{Type: "agent", ID: "\xff"}},
	} {
		if got, err := way.Context().MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("%+v: got %s, %v; want %s", way, got, err, want)
		}
	}
}
