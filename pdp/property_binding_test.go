package pdp_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/night"
)

// TestPropertyBindingOfACall: two questions that differ below context.arguments, if only by null and absent, or in the
// digest of the resource, have different bindings, whatever material says of the digest. Two that are the same
// have one, however they are written.
func TestPropertyBindingOfACall(t *testing.T) {
	t.Parallel()
	const policy = `@obligation("ask") permit(principal is agent, action, resource);`
	desks := map[string]*pdp.PDP{}
	for name, material := range map[string]string{
		"everything": "", "arguments": ", material: [subject, context.arguments]", "context": ", material: [context]", "resource": ", material: [resource]",
	} {
		desks[name], _ = deskOf(t, one(policy, "obligations.yaml", "ask: {type: approval_required, properties: {template: owner"+material+"}}"))
	}
	r := rand.New(rand.NewPCG(1, 2))
	same, differ, null := 0, 0, 0
	for n := range night.Cases(4000) {
		q := callOf(r)
		other, onlyNull := q.changed(r)
		again := written{q.arguments, q.digest, r}
		one, two := again.body(), written{other.arguments, other.digest, r}.body()
		arguments := !reflect.DeepEqual(meaningOf(t, q.arguments), meaningOf(t, other.arguments))
		digests := q.digest != other.digest
		for name, p := range desks {
			bound := bindingOfBody(t, p, written{q.arguments, q.digest, nil}.body())
			if bindingOfBody(t, p, one) != bound {
				t.Fatalf("%d, %s: one call written in two ways has two bindings:\n%s\n%s", n, name, written{q.arguments, q.digest, nil}.body(), one)
			}
			differs := digests || arguments && name != "resource"
			if got := bindingOfBody(t, p, two) != bound; got != differs {
				t.Fatalf("%d, %s: two calls, and two bindings is %v:\n%s\n%s", n, name, got, one, two)
			}
		}
		switch {
		case arguments && onlyNull:
			null++
		case arguments || digests:
			differ++
		default:
			same++
		}
	}
	if same < night.Cases(100) || differ < night.Cases(100) || null < night.Cases(100) {
		t.Errorf("%d same, %d different, %d by null alone: the generator does not test what it should", same, differ, null)
	}
}

func bindingOfBody(t *testing.T, p *pdp.PDP, body string) string {
	t.Helper()
	q, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	a, ok, err := p.Requestable(t.Context(), pdp.Call{Request: q})
	if err != nil || !ok {
		t.Fatalf("%s: cannot be approved: %v", body, err)
	}
	return string(a.Binding)
}

// toolCall is what the arguments of a call are, and the digest of its tool as JSON, "" for none.
type toolCall struct {
	arguments map[string]any
	digest    string
}

func callOf(r *rand.Rand) toolCall {
	return toolCall{argumentsOf(r, 3), oneDigest(r)}
}

func oneDigest(r *rand.Rand) string {
	return []string{"", `"sha256:a"`, `"sha256:b"`, `{"a":1}`, `7`}[r.IntN(5)]
}

// number is written in one of several ways.
type number struct{ ways []string }

func argumentsOf(r *rand.Rand, depth int) map[string]any {
	members := map[string]any{}
	for range r.IntN(4) {
		members[[]string{"a", "b", "null", "é", "\ufb33", "😂", ""}[r.IntN(7)]] = argument(r, depth-1)
	}
	return members
}

func argument(r *rand.Rand, depth int) any {
	n := r.IntN(8)
	if depth == 0 {
		n %= 6
	}
	switch n {
	case 0, 1:
		return nil
	case 2:
		return r.IntN(2) == 0
	case 3:
		return number{[][]string{{"7", "7.0", "70e-1"}, {"9007199254740993"}, {"9007199254740993.0", "90071992547409930e-1"}, {"9007199254740992", "9007199254740992.0"}, {"0", "-0", "0e9"}, {"1.50", "15e-1"}}[r.IntN(6)]}
	case 4, 5:
		return []string{"", "a", "null", "é"}[r.IntN(4)]
	case 6:
		elements := make([]any, r.IntN(3))
		for n := range elements {
			if elements[n] = argument(r, 0); r.IntN(2) == 0 {
				elements[n] = argumentsOf(r, 1)
			}
		}
		return elements
	}
	return argumentsOf(r, depth)
}

// changed is the same call, or one that is not quite the same: onlyNull says that a null came or went.
func (q toolCall) changed(r *rand.Rand) (other toolCall, onlyNull bool) {
	other = toolCall{copied(q.arguments).(map[string]any), q.digest}
	switch r.IntN(5) {
	case 0:
		other.digest = oneDigest(r)
	case 1:
		other.arguments["a"] = argument(r, 2)
	case 2, 3:
		nullIn(r, other.arguments)
		onlyNull = true
	}
	return other, onlyNull
}

// nullIn adds a null to some object, or takes it away.
func nullIn(r *rand.Rand, members map[string]any) {
	for name, value := range members {
		switch inner := value.(type) {
		case nil:
			if r.IntN(2) == 0 {
				delete(members, name)
				return
			}
		case map[string]any:
			nullIn(r, inner)
			return
		case []any:
			for _, e := range inner {
				if object, is := e.(map[string]any); is {
					nullIn(r, object)
					return
				}
			}
		}
	}
	if _, taken := members["extra"]; !taken {
		members["extra"] = nil
	}
}

func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, one := range v {
			out[name] = copied(one)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for n, one := range v {
			out[n] = copied(one)
		}
		return out
	}
	return v
}

// written is a call as text: with a source of chance, in any of its ways.
type written struct {
	arguments map[string]any
	digest    string
	r         *rand.Rand
}

func (w written) body() string {
	properties := ""
	if w.digest != "" {
		properties = `,"properties":{"digest":` + w.digest + `}`
	}
	return `{"subject":{"type":"agent","id":"a"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"t"` + properties +
		`},"context":{"arguments":` + w.text(w.arguments) + `}}`
}

func (w written) text(v any) string {
	switch v := v.(type) {
	case number:
		if w.r == nil {
			return v.ways[0]
		}
		return v.ways[w.r.IntN(len(v.ways))]
	case string:
		if w.r != nil && w.r.IntN(2) == 0 {
			return strings.ReplaceAll(strconv.Quote(v), "é", `\u00e9`)
		}
		return strconv.Quote(v)
	case map[string]any:
		var members []string
		for name, one := range v { // in any order, as Go has it
			members = append(members, w.text(name)+":"+w.text(one))
		}
		return "{" + strings.Join(members, ",") + "}"
	case []any:
		var elements []string
		for _, one := range v {
			elements = append(elements, w.text(one))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// meaningOf is what arguments say to another reader of JSON, with numbers that are exact.
func meaningOf(t *testing.T, arguments map[string]any) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(written{arguments: arguments}.text(arguments)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return exactly(v)
}

type rational string

func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := new(big.Rat).SetString(v.String())
		return rational(n.RatString())
	case map[string]any:
		for name, one := range v {
			v[name] = exactly(one)
		}
	case []any:
		for n, one := range v {
			v[n] = exactly(one)
		}
	}
	return v
}
