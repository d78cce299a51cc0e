package evaluation_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
)

func TestAnswer(t *testing.T) {
	t.Parallel()
	explained := &evaluation.Explanation{Policies: []evaluation.PolicyExplanation{{
		ID: "p", Effect: "permit", Verdict: evaluation.NotSatisfied, Position: "a.cedar:1:2", Failed: "when { true }",
		Attributes: []evaluation.AttributeRead{{Path: "context.x", Source: evaluation.Sent}},
	}}}
	const explanation = `"explain":{"policies":[{"id":"p","effect":"permit","verdict":"not_satisfied","position":"a.cedar:1:2","failed":"when { true }","attributes":[{"path":"context.x","source":"sent"}]}]}`
	for what, c := range map[string]struct {
		d               evaluation.Decision
		authzen, native string
	}{
		"deny":   {evaluation.Decision{}, `{"decision":false}`, `{"allow":false}`},
		"allow":  {evaluation.Decision{Allow: true}, `{"decision":true}`, `{"allow":true}`},
		"reason": {evaluation.Decision{Reason: evaluation.UnknownType}, `{"decision":false,"context":{"reason":"unknown_type"}}`, `{"allow":false,"reason":"unknown_type"}`},
		"reason_user": {evaluation.Decision{Allow: true, ReasonUser: "a\"b\n<é\xff>"},
			`{"decision":true,"context":{"reason_user":"a\"b\n<é` + "\uFFFD" + `>"}}`, `{"allow":true,"reason_user":"a\"b\n<é` + "\uFFFD" + `>"}`},
		"explain":      {evaluation.Decision{Explain: explained}, `{"decision":false,"context":{` + explanation + `}}`, `{"allow":false,` + explanation + `}`},
		"no policies":  {evaluation.Decision{Explain: &evaluation.Explanation{Policies: []evaluation.PolicyExplanation{}}}, `{"decision":false,"context":{"explain":{"policies":[]}}}`, `{"allow":false,"explain":{"policies":[]}}`},
		"nothing read": {evaluation.Decision{Explain: &evaluation.Explanation{Policies: []evaluation.PolicyExplanation{{}}}}, `{"decision":false,"context":{"explain":{"policies":[{"id":"","effect":"","verdict":"","position":"","attributes":[]}]}}}`, `{"allow":false,"explain":{"policies":[{"id":"","effect":"","verdict":"","position":"","attributes":[]}]}}`},
		"everything": {evaluation.Decision{Reason: evaluation.ErroredPolicy, ReasonUser: "no", Explain: explained},
			`{"decision":false,"context":{"reason":"policy_error","reason_user":"no",` + explanation + `}}`, `{"allow":false,"reason":"policy_error","reason_user":"no",` + explanation + `}`},
		"possible":              {evaluation.Decision{Possible: evaluation.Possible}, `{"decision":false,"context":{"possible":true}}`, `{"allow":false,"possible":true}`},
		"impossible, explained": {evaluation.Decision{Possible: evaluation.Impossible, Explain: explained}, `{"decision":false,"context":{"possible":false,` + explanation + `}}`, `{"allow":false,"possible":false,` + explanation + `}`},
		"possible is no allow, and nothing is beside it": {evaluation.Decision{Possible: evaluation.Possible, Allow: true, Reason: evaluation.ErroredPolicy, ReasonUser: "no", Required: []string{"log"},
			Obligations: []evaluation.Obligation{{ID: "o", Type: "log"}}, Approval: &evaluation.Approval{ID: "1", Status: "pending"}, Access: &evaluation.Access{Reason: "x"}},
			`{"decision":false,"context":{"possible":true}}`, `{"allow":false,"possible":true}`},
		"nobody can be asked, by July's draft": {evaluation.Decision{Reason: evaluation.ApprovalRequired, Required: []string{"approval_required"}, Refused: &evaluation.Mismatch{Pointer: "/context/agent", Detail: "d"}},
			`{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"],"access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}}}`,
			`{"allow":false,"reason":"approval_required","required_obligations":["approval_required"],"access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}}`},
		"nobody can be asked": {evaluation.Decision{Draft: evaluation.October, Reason: evaluation.ApprovalRequired, Refused: &evaluation.Mismatch{Pointer: "/context/agent", Detail: "d"}},
			`{"decision":false,"context":{"reason":"approval_required","next_action":"none","access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}}}`,
			`{"allow":false,"reason":"approval_required","access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}}`},
		"nobody can be asked anew": {evaluation.Decision{Draft: evaluation.October, Refused: &evaluation.Mismatch{Pointer: "/context/agent", Detail: "d"},
			Access: &evaluation.Access{Reason: evaluation.ApprovalExpired, NextAction: evaluation.NextRequest, Request: &evaluation.AccessRequest{BindingToken: "t"}}},
			`{"decision":false,"context":{"reason":"approval_expired","next_action":"none","access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}}}`,
			`{"allow":false,"access_request":{"refused":{"pointer":"/context/agent","detail":"d"}}}`},
		"what stays inside": {evaluation.Decision{ID: "01", Allow: true, Determining: []string{"p"}, Bundle: "h1:x",
			Errors: []evaluation.PolicyError{{Policy: "q", Position: "a.cedar:3:4", Kind: evaluation.Overflow}}}, `{"decision":true}`, `{"allow":true}`},
	} {
		for shape, want := range map[evaluation.Shape]string{evaluation.AuthZEN: c.authzen, evaluation.Native: c.native} {
			if got, err := shape.Answer(c.d); string(got) != want || err != nil {
				t.Errorf("%s: %s, %v\nand not %s", what, got, err, want)
			}
		}
	}
}

// TestManyAddresses: the author of a tenant chooses how many addresses a notification has, and all tenants wait for the answer.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	addresses := make([]string, 50_000)
	for n := range addresses {
		addresses[n] = "a" + strconv.Itoa(n/2) // each twice
	}
	to, err := evaluation.Texts(addresses)
	if err != nil {
		t.Fatal(err)
	}
	tell := evaluation.Obligation{ID: "tell", Type: "notification", Properties: evaluation.Object{}.With("to", to)}
	began := time.Now()
	b, err := evaluation.AuthZEN.Answer(evaluation.Decision{Allow: true, Draft: evaluation.October, Obligations: []evaluation.Obligation{tell}})
	if took := time.Since(began); err != nil || took > 10*time.Second || strings.Count(string(b), `"a24999"`) != 1 {
		t.Errorf("after %v: %d bytes, %v", took, len(b), err)
	}
}

func TestPointer(t *testing.T) {
	t.Parallel()
	for canonical, native := range map[string]string{
		"":                                 "",
		"/subject":                         "/actor",
		"/subject/type":                    "/actor/actor_type",
		"/subject/id":                      "/actor/actor_id",
		"/subject/properties":              "/actor",
		"/subject/properties/roles":        "/actor/roles",
		"/subject/properties/roles/0":      "/actor/roles/0",
		"/subject/properties/a~1b":         "/actor/a~1b",
		"/subject/identity":                "/actor/identity",
		"/action":                          "/action",
		"/action/name":                     "/action",
		"/resource":                        "/resource",
		"/resource/id":                     "/resource/id",
		"/resource/properties/labels":      "/resource/labels",
		"/resource/properties/labels/team": "/resource/labels/team",
		"/context":                         "/context",
		"/context/purpose":                 "/purpose",
		"/context/purposes":                "/context/purposes",
		"/context/x/purpose":               "/context/x/purpose",
	} {
		if got := evaluation.Native.Pointer(canonical); got != native {
			t.Errorf("%q is at %q in the native shape, and not at %q", canonical, got, native)
		}
		if got := evaluation.AuthZEN.Pointer(canonical); got != canonical {
			t.Errorf("%q is at %q in the AuthZEN shape", canonical, got)
		}
		if got := evaluation.AuthZEN.Canonical(native); got != native {
			t.Errorf("%q of the AuthZEN shape is at %q", native, got)
		}
		// What a native body has at one place may have two names.
		switch got := evaluation.Native.Canonical(native); {
		case canonical == "/subject/properties" || canonical == "/action" || canonical == "/subject/identity":
		case got != canonical:
			t.Errorf("%q of the native shape is at %q, and not at %q", native, got, canonical)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*evaluation.Error{
		"what":                   {Detail: "what"},
		"/a/b: what":             {Pointer: "/a/b", Detail: "what"},
		"what; try this":         {Detail: "what", Try: "try this"},
		"/a/b: what; try this":   {Pointer: "/a/b", Detail: "what", Try: "try this"},
		"/a~1b/~0: what; try it": evaluation.Malformed("what", "try it", "a/b", "~"),
		"/: what":                evaluation.Malformed("what", "", ""),
		"whole":                  evaluation.Malformed("whole", ""),
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, and not %q", got, want)
		}
	}
}

// What a deny points out is a value that policies could not read, or that does not fit the schema; an allow points out nothing.
func TestPointOut(t *testing.T) {
	t.Parallel()
	at := []evaluation.Mismatch{{Pointer: "/context/a"}, {Pointer: "/context/b"}}
	unread := []evaluation.PolicyError{{Policy: "p", Kind: evaluation.UnusableValue}}
	for what, c := range map[string]struct {
		d    evaluation.Decision
		want string
	}{
		"a misfit":                    {evaluation.Decision{Reason: evaluation.SchemaMismatch, Mismatch: at}, "/context/a"},
		"an errored forbid":           {evaluation.Decision{Reason: evaluation.ErroredPolicy, Errors: unread, Mismatch: at}, "/context/a"},
		"an errored permit":           {evaluation.Decision{Errors: unread, Mismatch: at}, "/context/a"},
		"another error":               {evaluation.Decision{Reason: evaluation.ErroredPolicy, Errors: []evaluation.PolicyError{{Kind: evaluation.WrongType}}, Mismatch: at}, ""},
		"a forbid that applies":       {evaluation.Decision{Determining: []string{"f"}, Errors: unread, Mismatch: at}, ""},
		"an approval that is owed":    {evaluation.Decision{Reason: evaluation.ApprovalRequired, Errors: unread, Mismatch: at}, ""},
		"a default deny":              {evaluation.Decision{Mismatch: at}, ""},
		"an allow":                    {evaluation.Decision{Allow: true, Errors: unread, Mismatch: at}, ""},
		"what is possible":            {evaluation.Decision{Possible: evaluation.Impossible, Errors: unread, Mismatch: at}, ""},
		"places that were not looked": {evaluation.Decision{Reason: evaluation.SchemaMismatch}, ""},
	} {
		if c.d.PointOut(); c.d.Pointer != c.want {
			t.Errorf("%s: %q", what, c.d.Pointer)
		}
	}
}
