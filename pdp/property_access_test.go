package pdp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	stopped "policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/night"
)

// question is a question to a server, with the expected answer.
type question struct {
	who      worldEntity
	action   string
	resource string // its type
	tool     string
	held     bool // there is a capability, which no request can say
	allow    bool
	approval string // properties as JSON, "" for none
}

func (q question) String() string {
	return fmt.Sprintf("%s %q %s %s %q, held %t", q.who.Type, q.who.ID, q.action, q.resource, q.tool, q.held)
}

// batchOf is a batch of questions of a PEP that can wait for people.
func batchOf(t *testing.T, all []question) string {
	t.Helper()
	items := make([]any, len(all))
	for n, q := range all {
		items[n] = map[string]any{
			"subject": map[string]any{"type": q.who.Type, "id": q.who.ID}, "action": map[string]any{"name": q.action},
			"resource": map[string]any{"type": q.resource, "id": q.tool},
		}
	}
	text, err := json.Marshal(map[string]any{"context": map[string]any{"supported_obligations": []string{"approval_required"}}, "evaluations": items})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answered holds the answers to a batch to the expected ones, and returns the first that is another, or "".
func answered(t *testing.T, body string, all []question) string {
	t.Helper()
	var got struct {
		Evaluations []struct {
			Decision bool
			Context  struct {
				Reason      string
				Obligations []struct {
					Type       string
					Properties map[string]any
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Evaluations) != len(all) {
		t.Fatalf("%d answers to %d questions, %v: %.500s", len(got.Evaluations), len(all), err, body)
	}
	for n, q := range all {
		answer, approval := got.Evaluations[n], ""
		for _, o := range answer.Context.Obligations {
			properties, err := json.Marshal(o.Properties)
			if err != nil {
				t.Fatal(err)
			}
			approval += string(properties)
		}
		if answer.Decision != q.allow || approval != q.approval {
			return fmt.Sprintf("%s: %t, approval %q, %s; want %t, approval %q", q, answer.Decision, approval, answer.Context.Reason, q.allow, q.approval)
		}
	}
	return ""
}

// decided are the decisions of a bundle about a batch, without a server.
func decided(t *testing.T, b *pdp.Bundle, tenant, batch string, now time.Time) []evaluation.Decision {
	t.Helper()
	items, err := evaluation.DecodeBatch([]byte(batch), tenant, evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	d, err := pdp.Of(b, pdp.Options{}).EvaluateBatch(context.Background(), pdp.BatchCall{Batch: items, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return d.Items
}

// outcomeOf is the part of a decision in which bundles can differ.
func outcomeOf(d evaluation.Decision) string {
	return fmt.Sprintf("%t %d %q %q by %q, overruled %q, errors %v, owes %v", d.Allow, d.Possible, d.Reason, d.ReasonUser, d.Determining, d.Overruled, d.Errors, d.Obligations)
}

// sameDecisions returns the first decision in which they differ, or "".
func sameDecisions(all []question, a, b []evaluation.Decision) string {
	for n := range all {
		if x, y := outcomeOf(a[n]), outcomeOf(b[n]); x != y {
			return fmt.Sprintf("%s:\n  %s\n  %s", all[n], x, y)
		}
	}
	return ""
}

// shown is a bundle with the policies that Access prints in place of its declarations.
func shown(b *pdp.Bundle, files map[string]string) map[string]string {
	all := map[string]string{}
	for name, text := range files {
		if !strings.HasPrefix(name, "access/") && !strings.Contains(name, "/access/") {
			all[name] = text
		}
	}
	for _, a := range b.Access() {
		tenant := a.Tenant
		if tenant == "default" {
			tenant = ""
		}
		all[below(tenant, "shown-"+a.Owner+".cedar")] = a.Cedar
		if a.Obligations != "" {
			all[below(tenant, "obligations.yaml")] += a.Obligations
		}
	}
	return all
}

// TestPropertyAccess holds a running server to an interpreter of declarations of tool access: whatever is declared at the
// root and in a tenant, by whichever names, for every agent, and at every time. Policies by hand permit all they can meanwhile, and
// open nothing. With the index, without it, and by the policies that are printed, each decision is the same.
//
// It takes 1.5 s: it runs a server for each of its worlds.
func TestPropertyAccess(t *testing.T) {
	t.Parallel()
	const atLeast = 200 // declarations
	declarations, seen := 0, map[string]int{}
	pdp.EachSeed(t, 50, func(t *testing.T, seed uint64, by *rand.Rand) {
		w := newDeclaredWorld(by)
		declarations += w.count()
		at := stopped.At(w.ends[0])
		b, problems := pdp.Load(w.source())
		if problems.Refuse() {
			t.Fatalf("seed %d: it does not load:\n%s\n%s", seed, problems.Error(), w)
		}
		printed := loadFiles(t, shown(b, w.files))
		s := pdptest.Start(t, w.source(), func(c *server.Config) { c.Program.PDP.Now = at.Now })
		for _, end := range w.ends {
			for _, beside := range []time.Duration{-time.Second, -time.Millisecond, -time.Nanosecond, 0, time.Second} {
				if by.IntN(3) > 0 {
					continue
				}
				now := end.Add(beside)
				at.Advance(now.Sub(at.Now()))
				for _, tenant := range []string{"", "t"} {
					path := pathOf(tenant)
					all := w.questions(tenant, now, 36, false)
					for _, q := range all {
						seen[fmt.Sprint("allow ", q.allow)]++
						seen[fmt.Sprint("approval ", q.approval != "")]++
					}
					batch := batchOf(t, all)
					got := s.Post(path+"/access/v1/evaluations", batch)
					if wrong := answered(t, got.Body, all); wrong != "" {
						t.Fatalf("seed %d, tenant %q, at %v: %s\n%s", seed, tenant, now, wrong, w)
					}
					if wrong := w.otherWays(t, s, path, tenant, now); wrong != "" {
						t.Fatalf("seed %d, tenant %q, at %v: %s\n%s", seed, tenant, now, wrong, w)
					}
					if wrong := w.holding(t, []*pdp.Bundle{b, b.WithoutIndex(), printed}, tenant, now, seen); wrong != "" {
						t.Fatalf("seed %d, tenant %q, at %v: %s\n%s", seed, tenant, now, wrong, w)
					}
					indexed := decided(t, b, tenant, batch, now)
					if text, err := evaluation.Answers(indexed); err != nil || string(text) != got.Body {
						t.Fatalf("seed %d: the server says %s, and the library %s, %v", seed, got.Body, text, err)
					}
					if diff := sameDecisions(all, indexed, decided(t, b.WithoutIndex(), tenant, batch, now)); diff != "" {
						t.Fatalf("seed %d, tenant %q, at %v: with and without the index: %s\n%s", seed, tenant, now, diff, w)
					}
					if diff := sameDecisions(all, indexed, decided(t, printed, tenant, batch, now)); diff != "" {
						t.Fatalf("seed %d, tenant %q, at %v: declared and printed: %s\n%s", seed, tenant, now, diff, w)
					}
				}
			}
		}
	})
	t.Logf("%d declarations, %v", declarations, seen)
	if !pdp.FewSeeds() && !t.Failed() {
		for _, what := range []string{"held and allowed", "held for nothing", "observed"} {
			if seen[what] < night.Cases(100) {
				t.Errorf("%d questions are %s: the generator does not test what it should", seen[what], what)
			}
		}
		for _, what := range []string{"allow true", "allow false", "approval true"} {
			if n, total := seen[what], seen["allow true"]+seen["allow false"]; 100*n < 3*total {
				t.Errorf("%d of %d questions are %s: the generator does not test what it should", n, total, what)
			}
		}
		if declarations < night.Cases(atLeast) {
			t.Errorf("%d declarations, fewer than %d", declarations, atLeast)
		}
	}
}

// pathOf is where the paths of a tenant begin.
func pathOf(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/tenants/" + tenant
}

// holding asks some questions with a capability and some without, which a request cannot say, and of several bundles that
// should not differ. It returns what is wrong, or "".
func (w *declaredWorld) holding(t *testing.T, bundles []*pdp.Bundle, tenant string, now time.Time, seen map[string]int) string {
	t.Helper()
	for n, q := range w.questions(tenant, now, 12, w.chance(50)) {
		body, err := json.Marshal(map[string]any{
			"subject": map[string]any{"type": q.who.Type, "id": q.who.ID}, "action": map[string]any{"name": q.action},
			"resource": map[string]any{"type": q.resource, "id": q.tool}, "context": map[string]any{"supported_obligations": []string{"approval_required"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		request, err := evaluation.Decode(body, tenant, evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		call := pdp.Call{Request: request, Now: now}
		if q.held {
			call.Capability = evaluation.Capability{Held: true, ID: "cap_1", Depth: n % 3}
		}
		first := ""
		for of, b := range bundles {
			d, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			observed := []string{}
			for _, id := range d.Determining {
				if strings.HasSuffix(id, ".observe") {
					observed = append(observed, id)
				}
			}
			slices.Sort(observed)
			want := w.observing(tenant, q)
			if d.Allow != q.allow || len(d.Obligations) > 0 != (q.approval != "") || !slices.Equal(observed, want) {
				return fmt.Sprintf("of bundle %d: %s: %s, want %t, approval %q, observed %q", of, q, outcomeOf(d), q.allow, q.approval, want)
			}
			if of == 0 {
				first = outcomeOf(d)
			} else if outcomeOf(d) != first {
				return fmt.Sprintf("of bundle %d: %s:\n  %s\n  %s", of, q, first, outcomeOf(d))
			}
		}
		without, _ := w.answer(tenant, q.who, q.action, q.tool, false, now)
		switch {
		case q.held && q.allow && !without:
			seen["held and allowed"]++
		case q.held && !q.allow:
			seen["held for nothing"]++
		case len(w.observing(tenant, q)) > 0:
			seen["observed"]++
		}
	}
	return ""
}

// questions are some of all that can be asked about a world, each with its answer at a time.
func (w *declaredWorld) questions(tenant string, now time.Time, n int, held bool) (all []question) {
	var owners []string
	for _, d := range slices.Concat(w.declarations[""], w.declarations[tenant]) {
		owners = append(owners, d.Owner)
	}
	for range n {
		q := question{who: worldPick(w, w.agents), action: worldPick(w, w.actions), resource: "tool", tool: worldPick(w, owners) + ":" + worldPick(w, w.tools), held: held}
		if w.chance(10) {
			q.tool = worldPick(w, worldOwners) + ":" + worldPick(w, w.tools)
		}
		switch w.IntN(40) {
		case 0:
			q.tool = worldPick(w, w.tools)
		case 1:
			q.tool = worldPick(w, worldOwners)
		}
		q.allow, q.approval = w.answer(tenant, q.who, q.action, q.tool, held, now)
		if w.IntN(30) == 0 { // declarations are not about other actions: the permit by hand counts
			q.action, q.approval = "tool.see", ""
			q.allow = w.permits && !w.forbids(tenant, q.who, q.tool)
		}
		if w.IntN(30) == 0 && w.files["schema.cedarschema"] == "" { // nor about a resource that is no tool
			q.resource, q.allow, q.approval = "gadget", w.permits, ""
		}
		all = append(all, q)
	}
	return all
}

// otherWays asks in the other shape and by searches, and returns an answer that is not the expected one, or "".
func (w *declaredWorld) otherWays(t *testing.T, s *pdptest.Server, path, tenant string, now time.Time) string {
	t.Helper()
	q := w.questions(tenant, now, 1, false)[0]
	native, err := json.Marshal(map[string]any{
		"tenant_id": cmp.Or(tenant, "default"), "actor": map[string]any{"actor_id": q.who.ID, "actor_type": q.who.Type}, "action": q.action,
		"resource": map[string]any{"type": q.resource, "id": q.tool},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Allow bool }
	answer := s.Post("/v1/authorize", string(native)).Body
	if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Allow != q.allow || strings.Contains(answer, "approval_required") != (q.approval != "") {
		return fmt.Sprintf("natively: %s: %s, want %t, approval %q", q, answer, q.allow, q.approval)
	}
	// Nothing here hangs on an unknown value, so an allow is possible if, and only if, there is one.
	unknown := s.Post(path+"/access/v1/evaluation", fmt.Sprintf(`{"subject":%s,"action":{"name":%q},"resource":%s,"context":{"supported_obligations":["approval_required"]},"options":{"unknown":[%q]}}`,
		jsonEntity(t, q.who.Type, q.who.ID), q.action, jsonEntity(t, q.resource, q.tool), worldPick(w, []string{"/context/arguments", "/context", "/context/pdp/approved", "/resource/properties"}))).Body
	if unknown != fmt.Sprintf(`{"decision":false,"context":{"possible":%t}}`, q.allow) {
		return fmt.Sprintf("not knowing all: %s: %s, want %t", q, unknown, q.allow)
	}
	// Whether there is a capability is not known when tools are listed. Nothing is hidden that can be called with one.
	hides := func(answer string) bool { return !strings.Contains(answer, `"possible":true`) }
	with, _ := w.answer(tenant, q.who, q.action, q.tool, true, now)
	if q.resource != "tool" || !slices.Contains(w.actions, q.action) {
		with = q.allow
	}
	unknown = s.Post(path+"/access/v1/evaluation", fmt.Sprintf(`{"subject":%s,"action":{"name":%q},"resource":%s,"context":{"supported_obligations":["approval_required"]},"options":{"unknown":["/context/pdp/capability"]}}`,
		jsonEntity(t, q.who.Type, q.who.ID), q.action, jsonEntity(t, q.resource, q.tool))).Body
	if (with || q.allow) && hides(unknown) {
		return fmt.Sprintf("not knowing the capability: %s: %s, want it possible", q, unknown)
	}
	const search = `{"context":{"supported_obligations":["approval_required"]},"action":{"name":"tool.invoke"},`
	found := w.found(t, s, path+"/access/v1/search/resource", search+fmt.Sprintf(`"subject":%s,"resource":{"type":"tool"}}`, jsonEntity(t, q.who.Type, q.who.ID)))
	if want := w.stored(tenant, "tool", func(e worldEntity) bool { return w.allows(tenant, q.who, e.ID, now) }); !slices.Equal(found, want) {
		return fmt.Sprintf("%s %q finds the tools %q, want %q", q.who.Type, q.who.ID, found, want)
	}
	found = w.found(t, s, path+"/access/v1/search/subject", search+fmt.Sprintf(`"subject":{"type":%q},"resource":%s}`, q.who.Type, jsonEntity(t, "tool", q.tool)))
	if want := w.stored(tenant, q.who.Type, func(e worldEntity) bool { return w.allows(tenant, e, q.tool, now) }); !slices.Equal(found, want) {
		return fmt.Sprintf("%q is found to be open to %s %q, want %q", q.tool, q.who.Type, found, want)
	}
	return ""
}

func jsonEntity(t *testing.T, kind, id string) string {
	t.Helper()
	text, err := json.Marshal(map[string]string{"type": kind, "id": id})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// found are the ids that a search finds.
func (w *declaredWorld) found(t *testing.T, s *pdptest.Server, path, body string) []string {
	t.Helper()
	var got struct{ Results []struct{ ID string } }
	answer := s.Post(path, body)
	if err := json.Unmarshal([]byte(answer.Body), &got); err != nil || answer.Status != 200 {
		t.Fatalf("%s: %d %s, %v\n%s", body, answer.Status, answer.Body, err, w)
	}
	ids := []string{}
	for _, r := range got.Results {
		ids = append(ids, r.ID)
	}
	return ids
}

func (w *declaredWorld) allows(tenant string, who worldEntity, tool string, now time.Time) bool {
	allow, _ := w.answer(tenant, who, "tool.invoke", tool, false, now)
	return allow
}

// stored are the ids of the entities of a type that a tenant sees and keep keeps, sorted.
func (w *declaredWorld) stored(tenant, kind string, keep func(worldEntity) bool) []string {
	ids := []string{}
	for _, e := range w.entities {
		if e.Type == kind && (e.tenant == "" || e.tenant == tenant) && keep(e) {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
