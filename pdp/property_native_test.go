package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// TestPropertyNativeIsAuthZEN holds SEMANTICS.md 1: the native request is the
// AuthZEN request, so asked either way the same question is one Request, gets
// one answer, or is refused both ways at the same place.
func TestPropertyNativeIsAuthZEN(t *testing.T) {
	t.Parallel()
	starter := bundleFrom(t, Dir("../policies/starter"))
	seen := tally{}
	eachSeed(t, 100, func(t *testing.T, g *generator) {
		w := g.world(12)
		w.policies = append(w.policies, sharedPolicies...)
		ours := w.load(t)
		for range 40 {
			q, b, place := g.shared(worldWords), ours, w.String()
			if g.chance(50) {
				q, b, place = g.shared(starterWords), starter, "policies/starter\n"
			}
			q.spoil(g)
			if diff := shapesDiffer(g, b, q, seen); diff != "" {
				t.Fatalf("seed %d: %s\n%s", g.seed, diff, place)
			}
		}
	})
	seen.atLeast(t, "refused by both", 5)
	seen.atLeast(t, "refused while evaluated", 1)
	seen.atLeast(t, "allow", 5)
	seen.atLeast(t, "with a mismatch", 5)
	seen.atLeast(t, "with an unusable value", 2)
	seen.atLeast(t, "with a reason", 2)
	seen.atLeast(t, "with errors", 5)
}

// TestPropertyPurposeTwice: the one question with a native and no AuthZEN form
// is none at all.
func TestPropertyPurposeTwice(t *testing.T) {
	t.Parallel()
	eachSeed(t, 100, func(t *testing.T, g *generator) {
		q := g.shared(worldWords)
		q.context = append(q.context.without("purpose"), pair{"purpose", oneOf(g, `"x"`, "1.5", "{}")})
		q.purpose = `"x"`
		_, err := evaluation.DecodeNative([]byte(q.native(g)), evaluation.DefaultLimits())
		var e *evaluation.Error
		if !errors.As(err, &e) || e.Pointer != "/context/purpose" {
			t.Errorf("seed %d: %v\n%s", g.seed, err, q.native(g))
		}
	})
}

// sharedPolicies read what both shapes can send.
var sharedPolicies = []policyText{
	{text: `@id("s1") permit (principal, action, resource) when { resource.labels.impact == "read" };`},
	{text: `@id("s2") permit (principal, action, resource) when { context has purpose && context.purpose like "Resolve*" };`},
	{text: `@id("s3") @reason_user("no") forbid (principal, action, resource) when { principal has department_id && principal.department_id == "finance" };`},
	{text: `@id("s4") forbid (principal, action, resource) when { context has approved || context.action has x };`},
	{text: `@id("s5") permit (principal, action, resource) when { context.arguments.n == 1 };`},
}

// words are what questions for one bundle are made of.
type words struct {
	tenants, subjects, actions, resources []string // types and ids as type:id
}

var (
	worldWords = words{
		[]string{"default"}, []string{"User:u0", "User:u1", "User:u2", "Group:g1", "Action:read", "no type:"},
		[]string{"read", "write", "peek", ""}, []string{"Doc:d0", "Doc:d1", "Doc:d2", "Folder:f0", "User:u0"},
	}
	starterWords = words{
		[]string{"default", "default", "tenant-xyz", "nobody"}, []string{"agent:a1", "agent:a2", "user:alice", "user:carol", "user:dave", "user:stranger", "Agent:a1", "robot:r"},
		[]string{"tool.invoke", "tool.invoke", "tool.invoke", "tool.delete"}, []string{"tool:tickets:create_ticket", "tool:wiki:search_pages", "tool:deploy:status", "tool:unlisted", "agent:a1"},
	}
)

// pair is a member before it is text.
type pair struct{ name, raw string }

type pairs []pair

func (o pairs) without(name string) pairs {
	return slices.DeleteFunc(slices.Clone(o), func(p pair) bool { return p.name == name })
}

// text writes an object with its members in any order.
func (o pairs) text(g *generator) string {
	o = slices.Clone(o)
	g.Shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
	var members []string
	for _, p := range o {
		members = append(members, jsonText(p.name)+oneOf(g, ":", ": ")+p.raw)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// shared is a question that both shapes can put.
type shared struct {
	tenant                    string
	subjectType, subjectID    string // JSON, as all below
	action                    string
	resourceType, resourceID  string
	properties                pairs // of the subject
	labels, purpose           string
	context                   pairs
	defect                    string // the known member that is left out
	contextIsNull, contextIsX bool
}

func (g *generator) shared(w words) shared {
	typeAndID := func(of []string) (string, string) {
		typ, id, _ := strings.Cut(oneOf(g, of...), ":")
		return jsonText(typ), jsonText(id)
	}
	q := shared{tenant: oneOf(g, w.tenants...), action: jsonText(oneOf(g, w.actions...))}
	q.subjectType, q.subjectID = typeAndID(w.subjects)
	q.resourceType, q.resourceID = typeAndID(w.resources)
	q.properties = g.pairs(2, "roles", "department_id", "n", "flag", "s", "opt", "type", "id", "properties", "name")
	if i := slices.IndexFunc(q.properties, func(p pair) bool { return p.name == "roles" }); i >= 0 && g.chance(80) {
		q.properties[i].raw = oneOf(g, `["employee"]`, `"workflow_orchestrator"`, `["g0","g1"]`, "[]")
	}
	q.labels = oneOf(g, "", "null", "{}", `{"category":"internal","integration":"jira","impact":"read"}`, `{"impact":"write","category":null}`, g.pairs(1, "impact", "category", "n").text(g))
	q.purpose = oneOf(g, "", "null", `"Resolve user issue #555"`, `"b"`, `""`)
	q.context = g.pairs(2, "workflow_id", "arguments", "n", "odd", "flag", "s", "agent", "purposes")
	q.context = append(q.context, g.someProtocol()...)
	if g.chance(5) {
		q.context = append(q.context, pair{"purpose", "null"})
	} else if g.chance(10) {
		q.context, q.purpose = append(q.context, pair{"purpose", oneOf(g, `"Resolve it"`, "1", "1.5")}), ""
	}
	return q
}

// someProtocol makes members that are no part of the question, or that no
// caller may send.
func (g *generator) someProtocol() pairs {
	var all pairs
	for _, name := range some(g, 10, "supported_obligations", "justification", "approval", "approval_id", "approved", "access_request", "evaluation_id") {
		all = append(all, pair{name, g.raw(1)})
	}
	if g.chance(4) {
		all = append(all, pair{oneOf(g, "pdp", "action"), g.raw(1)})
	}
	return all
}

// spoil makes one thing wrong with a few questions.
func (q *shared) spoil(g *generator) {
	if !g.chance(12) {
		return
	}
	switch oneOf(g, "missing", "missing", "type", "context", "member", "twice") {
	case "missing":
		q.defect = oneOf(g, "subject", "subject.type", "subject.id", "action", "resource", "resource.type", "resource.id")
	case "type":
		bad := oneOf(g, "5", "null", "[]", `{"id":"x"}`, "true")
		*oneOf(g, &q.subjectType, &q.subjectID, &q.action, &q.resourceType, &q.resourceID) = bad
	case "context":
		q.contextIsNull, q.contextIsX = true, g.chance(50)
	case "member":
		p := pair{"bad", oneOf(g, `{"__entity":{"type":"User","id":"u0"}}`, `{"a":[{"__extn":1}]}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", "01", "[[[1]]]")}
		if *oneOf(g, &q.properties, &q.context) = (pairs{p}); g.chance(30) {
			q.labels, q.properties, q.context = pairs{p}.text(g), nil, nil
		}
	case "twice":
		*oneOf(g, &q.properties, &q.context) = pairs{{"n", "1"}, {"n", "1"}}
	}
}

func (g *generator) pairs(depth int, names ...string) pairs {
	all := pairs{}
	for _, name := range some(g, 30, names...) {
		all = append(all, pair{name, g.raw(depth)})
	}
	return all
}

// raw makes any JSON value that decodes, whether or not Cedar has one for it.
func (g *generator) raw(depth int) string {
	if depth == 0 || g.chance(60) {
		return oneOf(g, "null", "true", "false", "0", "1", "1.0", "1e0", "-7", "1.5", "1e400", "9223372036854775808", `""`, `"a"`, `"finance"`, `"engineering"`, `"\u00e9\n"`)
	}
	if g.chance(40) {
		return "[" + strings.Join(list(g, 0, 3, func() string { return g.raw(depth - 1) }), ",") + "]"
	}
	return g.pairs(depth-1, "n", "a", "purpose", "labels", "pdp", "").text(g)
}

// optional is a member that is absent where its text is empty, or left out.
func (q *shared) optional(name, raw, canonical string) pairs {
	if raw == "" || q.defect == canonical {
		return nil
	}
	return pairs{{name, raw}}
}

// native is the body of POST /v1/authorize.
func (q *shared) native(g *generator) string {
	actor := slices.Concat(q.properties, q.optional("actor_type", q.subjectType, "subject.type"), q.optional("actor_id", q.subjectID, "subject.id"))
	resource := slices.Concat(q.optional("type", q.resourceType, "resource.type"), q.optional("id", q.resourceID, "resource.id"),
		q.optional("labels", q.labels, "labels"), pairs{{oneOf(g, "name", "owner"), oneOf(g, "1.5", `"ignored"`)}})
	body := slices.Concat(pairs{{"tenant_id", jsonText(q.tenant)}, {"ignored", g.raw(2)}}, q.optional("actor", actor.text(g), "subject"), q.optional("action", q.action, "action"),
		q.optional("resource", resource.text(g), "resource"), q.optional("purpose", q.purpose, "purpose"))
	return append(body, q.contextPair(g, q.context)...).text(g)
}

// authzen is the body of POST /access/v1/evaluation.
func (q *shared) authzen(g *generator) string {
	properties := func(of pairs) pairs {
		if len(of) == 0 && g.chance(50) {
			return nil
		}
		return pairs{{"properties", of.text(g)}}
	}
	subject := slices.Concat(q.optional("type", q.subjectType, "subject.type"), q.optional("id", q.subjectID, "subject.id"), properties(q.properties))
	resource := slices.Concat(q.optional("type", q.resourceType, "resource.type"), q.optional("id", q.resourceID, "resource.id"), properties(q.optional("labels", q.labels, "labels")))
	action := slices.Concat(q.optional("name", q.action, "action.name"), properties(nil))
	members := q.context
	if q.purpose != "" {
		members = append(members.without("purpose"), pair{"purpose", q.purpose})
	}
	body := slices.Concat(pairs{{"ignored", g.raw(2)}}, q.optional("subject", subject.text(g), "subject"), q.optional("action", action.text(g), "action"), q.optional("resource", resource.text(g), "resource"))
	return append(body, q.contextPair(g, members)...).text(g)
}

func (q *shared) contextPair(g *generator, members pairs) pairs {
	switch {
	case q.contextIsX:
		return pairs{{"context", "[]"}}
	case q.contextIsNull && q.purpose == "":
		return pairs{{"context", "null"}}
	case len(members) == 0 && g.chance(50):
		return nil
	}
	return pairs{{"context", members.text(g)}}
}

// shapesDiffer says how the two ways to ask differ.
func shapesDiffer(g *generator, b *Bundle, q shared, seen tally) string {
	native, authzen := q.native(g), q.authzen(g)
	say := func(diff string) string {
		if diff == "" {
			return ""
		}
		return fmt.Sprintf("%s\n--- native\n%s\n--- AuthZEN, tenant %s\n%s", diff, native, q.tenant, authzen)
	}
	n, err1 := evaluation.DecodeNative([]byte(native), evaluation.DefaultLimits())
	a, err2 := evaluation.DecodeAuthZEN([]byte(authzen), q.tenant, evaluation.DefaultLimits())
	seen.count("refused by both", err1 != nil && err2 != nil)
	if err1 != nil || err2 != nil {
		return say(whereDiffers("refusals", refusal(err1, evaluation.AuthZEN), refusal(err2, evaluation.Native)))
	}
	if n.Shape != evaluation.Native || a.Shape != evaluation.AuthZEN || !sameRequest(n, a) {
		return say(whereDiffers("requests", jsonText(n), jsonText(a)+" "))
	}
	return say(whereDiffers("decisions", evaluated(b, n, seen), evaluated(b, a, seen)))
}

// refusal is where a body was refused, in the terms of the shape.
func refusal(err error, shape evaluation.Shape) string {
	var e *evaluation.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return shape.Pointer(e.Pointer)
}

func sameRequest(a, b evaluation.Request) bool {
	return a.Tenant == b.Tenant && a.Action.Name == b.Action.Name && sameObject(a.Action.Properties, b.Action.Properties) &&
		sameEntity(a.Subject, b.Subject) && sameEntity(a.Resource, b.Resource) && sameObject(a.Context, b.Context)
}

func sameEntity(a, b evaluation.Entity) bool {
	return a.Type == b.Type && a.ID == b.ID && sameObject(a.Properties, b.Properties)
}

func sameObject(a, b evaluation.Object) bool { return a.Value().Equal(b.Value()) }

// evaluated is all that Evaluate says to a request but the decision's id.
func evaluated(b *Bundle, r evaluation.Request, seen tally) string {
	d, err := Of(b, Options{}).Evaluate(context.Background(), Call{Request: r, Asker: evaluation.Asker{Name: "key:pep"}, Now: propertyTime, Explain: true})
	for n := range d.Mismatch { // the places of one body, to be compared
		d.Mismatch[n].Pointer = evaluation.Native.Pointer(d.Mismatch[n].Pointer)
	}
	engine.SortMismatch(d.Mismatch)
	if d.Explain != nil {
		for n := range d.Explain.Dropped {
			d.Explain.Dropped[n].Pointer = evaluation.Native.Pointer(d.Explain.Dropped[n].Pointer)
		}
		engine.SortMismatch(d.Explain.Dropped)
	}
	seen.count("with a mismatch", len(d.Mismatch) > 0)
	if slices.Contains(engine.ReasonOrder, d.Reason) && len(d.Mismatch) == 0 {
		return fmt.Sprintf("%d: %s without saying where", r.Shape, d.Reason)
	}
	unusable := d.Explain != nil && slices.ContainsFunc(d.Explain.Policies, func(p evaluation.PolicyExplanation) bool {
		return slices.ContainsFunc(p.Attributes, func(a evaluation.AttributeRead) bool { return a.Source == evaluation.Unusable })
	})
	if seen.count("with an unusable value", unusable); unusable && len(d.Mismatch) == 0 {
		return fmt.Sprintf("%d: an unusable value without saying where", r.Shape)
	}
	seen.count("refused while evaluated", err != nil)
	seen.count("allow", d.Allow)
	seen.count("with a reason", d.Reason != "")
	seen.count("with errors", len(d.Errors) > 0)
	d.ID = ""
	return fmt.Sprint(err, jsonText(d))
}
