package replay_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/replay"
)

// votes puts the record of a vote of mia on record, about a call of a tool by bot for zoe. More are members of its details.
func (a *archive) votes(tenant, event, more string) (id string) {
	a.t.Helper()
	a.ids++
	id = fmt.Sprintf("v%04d", a.ids)
	details := map[string]any{"approval": "a1", "by": `user::"mia"`, "template": "owner", "requester": "key:pep"}
	must(a.t, json.Unmarshal([]byte(more), &details))
	text, err := json.Marshal(details)
	must(a.t, err)
	must(a.t, a.log.Append(a.t.Context(), []record.Entry{{
		ID: id, Kind: format.KindApproval, Tenant: tenant, Caller: "key:mia", Now: a.now, Event: event, Details: text,
		Request: &record.Request{
			Subject: jsontext.Value(`{"type":"user","id":"zoe"}`), Action: jsontext.Value(`{"name":"tool.invoke"}`),
			Resource: jsontext.Value(`{"type":"tool","id":"t"}`), Context: jsontext.Value(`{"agent":{"type":"agent","id":"bot"}}`),
		},
	}}))
	return id
}

// voting is a bundle in which mia may vote.
func voting() map[string]string {
	return map[string]string{
		"a.cedar": `@id("use") permit(principal, action == Action::"tool.invoke", resource);
@id("decides") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval) when { resource.template == "owner" };`,
		"entities/e.json": `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`,
	}
}

// Only what a candidate takes from a person is lost, and the policy that takes it is named.
func TestVotes(t *testing.T) {
	t.Parallel()
	edit := func(was, is string) func(map[string]string) {
		return func(files map[string]string) {
			if !strings.Contains(files["a.cedar"], was) {
				panic(was)
			}
			files["a.cedar"] = strings.Replace(files["a.cedar"], was, is, 1)
		}
	}
	more := func(name, text string) func(map[string]string) {
		return func(files map[string]string) { files[name] += text }
	}
	edited := replay.Cause{Policy: "decides", Position: "a.cedar:2:1", Change: replay.Edited, Does: replay.PermitsNoMore}
	for name, c := range map[string]struct {
		base, next    func(map[string]string)
		tenant, event string
		more          string // of the details
		recorded      bool   // the base is what is on record
		lost, unknown int64
		own           bool
		cause         []replay.Cause
	}{
		"as it was":              {event: "approve"},
		"another person":         {next: edit(`user::"mia"`, `user::"noah"`), event: "approve", lost: 1, cause: []replay.Cause{edited}},
		"another template":       {next: edit(`"owner"`, `"boss"`), event: "deny", lost: 1, cause: []replay.Cause{edited}},
		"who names another":      {next: edit(`"owner"`, `"boss"`), event: "delegate", lost: 1, cause: []replay.Cause{edited}},
		"who was named":          {next: edit(`"owner"`, `"boss"`), event: "approve", more: `{"from":"user::\"noah\""}`},
		"no vote":                {next: edit(`"owner"`, `"boss"`), event: "revoked", lost: 0},
		"more people":            {next: edit(`principal == user::"mia"`, `principal`), event: "approve"},
		"what is not permitted":  {base: edit(`"owner"`, `"boss"`), event: "approve"},
		"by the record":          {base: edit(`"owner"`, `"boss"`), event: "approve", recorded: true, lost: 1},
		"a forbid":               {next: more("b.cedar", `@id("no") forbid(principal, action == Action::"approval.decide", resource);`), event: "approve", lost: 1, cause: []replay.Cause{{Policy: "no", Position: "b.cedar:1:1", Change: replay.Added, Does: replay.Forbids}}},
		"an obligation":          {next: edit(`@id("decides")`, `@id("decides") @obligation("log")`), event: "approve", lost: 1, cause: []replay.Cause{edited}},
		"one that may be unmet":  {base: more("bundle.yaml", "undeclared_obligations: allow\n"), next: edit(`@id("decides")`, `@id("decides") @obligation("log")`), event: "approve", lost: 1, cause: []replay.Cause{{Policy: "decides", Position: "a.cedar:2:1", Change: replay.Edited, Does: replay.ObligesNow}}},
		"a client of the person": {next: edit(`user::"mia"`, `user::"noah"`), event: "approve", more: `{"via":"form","client":{"type":"agent","id":"bot"}}`},
		"and it may be":          {next: edit(`user::"mia"`, `user::"noah"`), event: "approve", more: `{"via":"form","client":{"type":"agent","id":"bot"},"same_client":true}`, lost: 1, cause: []replay.Cause{edited}},
		"by the credential":      {base: edit(`"owner" }`, `"owner" && context.pdp.caller == "key:mia" }`), next: edit(`"key:mia"`, `"key:noah"`), event: "approve", lost: 1, cause: []replay.Cause{edited}},
		"by the way":             {base: edit(`"owner" }`, `"owner" && context.via == "form" }`), event: "approve", more: `{"via":"form","client":{"type":"none","id":""}}`, next: edit(`"form"`, `"api"`), lost: 1, cause: []replay.Cause{edited}},
		"by the time":            {next: edit(`"owner" }`, `"owner" && context.pdp.now < datetime("2026-11-28T12:00:00Z") }`), event: "approve", lost: 1, cause: []replay.Cause{edited}},
		"in time":                {next: edit(`"owner" }`, `"owner" && context.pdp.now < datetime("2026-11-28T13:00:00Z") }`), event: "approve"},
		"an entity":              {base: edit(`principal == user::"mia"`, `principal in team::"leads"`), next: func(files map[string]string) { files["entities/e.json"] = "[]" }, event: "approve", lost: 1, cause: []replay.Cause{{Policy: "decides", Position: "a.cedar:2:1", Does: replay.PermitsNoMore}}},
		"a tenant's own":         {base: func(files map[string]string) { tenantDecides(files, "mia") }, next: func(files map[string]string) { tenantDecides(files, "noah") }, tenant: "acme", event: "approve", more: `{"of_tenant":true}`, lost: 1, cause: []replay.Cause{{Policy: "acme", Position: "tenants/acme/b.cedar:1:1", Change: replay.Edited, Does: replay.PermitsNoMore}}},
		"the root's":             {base: func(files map[string]string) { tenantDecides(files, "mia") }, next: func(files map[string]string) { tenantDecides(files, "noah") }, tenant: "acme", event: "approve"},
		"a tenant that is gone":  {base: more("tenants/acme/b.cedar", `@id("acme") permit(principal, action == Action::"x", resource);`), tenant: "acme", event: "approve", next: func(files map[string]string) { delete(files, "tenants/acme/b.cedar") }, lost: 1, cause: []replay.Cause{{Policy: "decides", Position: "a.cedar:2:1", Does: replay.PermitsNoMore}}},
		"one's own":              {base: more("bundle.yaml", "allow_self_approval: [owner]\n"), next: func(files map[string]string) { delete(files, "bundle.yaml") }, event: "approve", more: `{"requester":"key:mia"}`, lost: 1, own: true, cause: []replay.Cause{}},
		"a hidden name":          {next: edit(`user::"mia"`, `user::"noah"`), event: "approve", more: `{"names_hidden":true}`, unknown: 1},
		"no name":                {next: edit(`user::"mia"`, `user::"noah"`), event: "approve", more: `{"by":"mia"}`, unknown: 1},
		"an empty name":          {event: "approve", more: `{"by":""}`, unknown: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := voting()
			if c.base != nil {
				c.base(base)
			}
			next := maps.Clone(base)
			if c.next != nil {
				c.next(next)
			}
			tenant := c.tenant
			if tenant == "" {
				tenant = "default"
			}
			a := open(t)
			a.load(base, true)
			more := c.more
			if more == "" {
				more = "{}"
			}
			id := a.votes(tenant, c.event, more)
			before, after := sideOf(t, base), sideOf(t, next)
			if c.recorded {
				after, before = before, nil
			}
			first := ""
			a.sources(func(name string, from func() replay.Source) {
				var changes []*replay.Change
				made, err := replay.Compare(t.Context(), from(), before, after, replay.Options{}, func(one *replay.Change) { changes = append(changes, one) })
				must(t, err)
				s := replay.Structure{}
				if before != nil {
					s = replay.Differ(before, after)
				}
				must(t, made.Causes(t.Context(), before, after, s, evaluation.DefaultLimits()))
				v := made.Votes
				cast := int64(1)
				if c.event == "revoked" {
					cast = 0
				}
				if v.Cast != cast || v.Lost != c.lost || v.Unknown != c.unknown || len(v.By) != int(c.lost) || len(changes) != int(c.lost) || made.Decisions != 0 {
					t.Errorf("got %+v, and %d changes", v, len(changes))
				}
				for _, l := range v.By {
					if l.By != `user::"mia"` || l.Votes != 1 || l.Own != c.own || changes[0].Class != replay.Lost || changes[0].Recorded.ID != id || l.Examples[0] != id {
						t.Errorf("got %+v", l)
					}
					if c.cause != nil && (len(l.Cause) != len(c.cause) || len(c.cause) > 0 && !alikeCause(l.Cause[0], c.cause[0])) {
						t.Errorf("because %+v, want %+v", l.Cause, c.cause)
					}
				}
				if text := textOf(t, made); first == "" {
					first = text
				} else if text != first {
					t.Errorf("%s: %s, and not %s", name, text, first)
				}
			})
		})
	}
}

func alikeCause(a, b replay.Cause) bool {
	a.Clause = ""
	return a == b
}

// tenantDecides has acme have a policy of its own.
func tenantDecides(files map[string]string, who string) {
	files["tenants/acme/b.cedar"] = `@id("acme") permit(principal == user::"` + who + `", action == Action::"approval.decide", resource is Approval) when { resource.template == "own" || true };`
	files["a.cedar"] = strings.Replace(files["a.cedar"], `user::"mia"`, `user::"boss"`, 1)
}
