package pdp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
)

const grantPolicies = `
@id("free") permit(principal is agent, action == Action::"capability.grant", resource) when { context.pdp.resource.id like "b:free*" };
@id("asks") @obligation("ask") permit(principal is agent, action == Action::"capability.grant", resource) when { context.pdp.resource.id like "b:asks*" };
@id("other") @obligation("also") permit(principal is agent, action == Action::"capability.grant", resource) when { context.pdp.resource.id like "b:other*" };
@id("once") @obligation("ask") permit(principal is agent, action == Action::"capability.grant", resource) when { context.pdp.resource.id like "b:once*" && !context.pdp.approved };
@id("before") @obligation("ask") permit(principal is agent, action == Action::"capability.grant", resource) when { context.pdp.resource.id like "b:bound*" && !context.pdp.approved };
@id("after") @obligation("session") permit(principal is agent, action == Action::"capability.grant", resource) when { context.pdp.resource.id like "b:bound*" && context.pdp.approved };
`

// grantObligations are those that the policies name.
const grantObligations = askFirst + "session: {type: capability_terms, properties: {channel: session}}\n"

// grantOf asks for tools; with an id it presents that approval.
func grantOf(t *testing.T, approval string, tools ...string) pdp.GrantCall {
	t.Helper()
	object := func(members map[string]any) evaluation.Object {
		o, err := evaluation.NewObject(members)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	of := func(typ, id string, properties map[string]any, context map[string]any) evaluation.Request {
		return evaluation.Request{
			Shape: evaluation.Native, Tenant: "default",
			Subject:  evaluation.Entity{Type: "agent", ID: "a"},
			Action:   evaluation.Action{Name: pdp.GrantAction, Properties: object(map[string]any{"seconds": 60})},
			Resource: evaluation.Entity{Type: typ, ID: id, Properties: object(properties)},
			Context:  object(context),
		}
	}
	presents := map[string]any{}
	if approval != "" {
		presents["approval_id"] = approval
	}
	call := pdp.GrantCall{
		People: func(obligations.GrantTerms) (evaluation.Request, string) {
			return of("server", "b", map[string]any{"digest": strings.Join(tools, " ")}, presents), ""
		},
		Asker:     evaluation.Asker{Name: "key:a", Registered: true, Obligations: []string{obligations.CapabilityTerms}},
		Approvals: pdp.SpendOrFile,
	}
	for _, tool := range tools {
		call.Questions = append(call.Questions, of("tool", tool, nil, nil))
	}
	return call
}

// TestGrant: a grant is all of its questions or nothing, people are asked once, and the use of their approval is one.
func TestGrant(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tools    string
		approved bool
		want     string // the answers, what became of the approval, what became of the capability
	}{
		"all free":                    {"b:free1 b:free2", false, "granted: allow allow; made [spent]"},
		"one is denied":               {"b:free1 b:no", false, "refused: allow deny; made []"},
		"none is asked for":           {"", false, "refused:; made []"},
		"one waits":                   {"b:free1 b:asks1", false, "refused: allow wait; filed a1; made []"},
		"two wait":                    {"b:asks1 b:asks2", false, "refused: wait wait; filed a1; made []"},
		"one waits and one is denied": {"b:asks1 b:no", false, "refused: wait deny; made []"},
		"two different approvals":     {"b:asks1 b:other1", false, "refused: obligation_conflict obligation_conflict; made []"},
		"approved":                    {"b:free1 b:asks1 b:asks2", true, "granted: allow met met of .1; used [spent]; made [spent]"},
		"approved, and denied then":   {"b:asks1 b:once1", true, "refused: wait deny approved; made []"},
		"approved, and then bounded":  {"b:asks1 b:bound1", true, "refused: wait obligation_unfilled approved; made []"},
		"approved for something else": {"b:asks1", false, "refused: wait; filed a1; made []"},
	} {
		t.Run(name, func(t *testing.T) {
			p, u, r := purseOf(t, one(grantPolicies, "obligations.yaml", grantObligations))
			tools, made := strings.Fields(test.tools), &purse{}
			prepare := func(context.Context, *pdp.GrantDecision) (pdp.Reservation, error) { return (*purseUse)(made), nil }
			if test.approved {
				if _, err := p.Grant(t.Context(), grantOf(t, "", tools...), prepare); err != nil {
					t.Fatal(err)
				}
				u.approved[u.filed[0]], u.filed, r.all = 1, nil, nil
			}
			out, err := p.Grant(t.Context(), grantOf(t, "one", tools...), prepare)
			if err != nil {
				t.Fatal(err)
			}
			got := map[bool]string{true: "granted:", false: "refused:"}[out.Allow]
			for n, record := range r.all {
				d := record.Decision
				got += " " + map[bool]string{true: "allow", false: "deny"}[d.Allow]
				switch met := d.Met; {
				case d.Reason != "":
					got = strings.TrimSuffix(got, "deny") + string(d.Reason)
				case len(met) == 1:
					got = strings.TrimSuffix(got, "allow") + "met"
					if shares, ok := strings.CutPrefix(met[0].Shares, out.ID); ok && shares != "" {
						got += " of " + shares
					}
				case len(out.Items[n].Obligations) > 0:
					got = strings.TrimSuffix(got, "allow") + "wait"
				}
				if record.Approved && !d.Allow {
					got += " approved"
				}
				if record.ID != fmt.Sprintf("%s.%d", out.ID, n) || record.Item.Batch != out.ID {
					t.Errorf("record %d: %+v", n, record)
				}
			}
			if len(u.filed) > 0 {
				got += "; filed " + out.Approval.ID
			}
			hows := func(all []settled) (hows []string) {
				for _, s := range all {
					hows = append(hows, s.how)
				}
				return hows
			}
			if len(u.settled) > 0 {
				got += fmt.Sprintf("; used %v", hows(u.settled))
			}
			if got += fmt.Sprintf("; made %v", hows(made.capabilityEnded)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestGrantFails: after a failure or a panic at any step, all that was reserved is in doubt, and nothing is granted.
func TestGrantFails(t *testing.T) {
	t.Parallel()
	failed := errors.New("no disk")
	for name, test := range map[string]struct {
		prepare func() error
		under   func(context.Context) error
		made    string
	}{
		"it cannot be prepared":        {func() error { return failed }, nil, "[]"},
		"a panic while it is prepared": {func() error { panic(failed) }, nil, "[]"},
		"it cannot be recorded":        {nil, func(context.Context) error { return failed }, "[{in doubt <nil>}]"},
		"a panic while it is recorded": {nil, func(context.Context) error { panic(failed) }, "[{in doubt <nil>}]"},
	} {
		t.Run(name, func(t *testing.T) {
			p, u, _ := purseOf(t, one(grantPolicies, "obligations.yaml", grantObligations))
			made := &purse{}
			prepare := func(context.Context, *pdp.GrantDecision) (pdp.Reservation, error) {
				if test.prepare != nil {
					if err := test.prepare(); err != nil {
						return nil, err
					}
				}
				return (*purseUse)(made), nil
			}
			if _, err := p.Grant(t.Context(), grantOf(t, "", "b:asks1"), prepare); err != nil {
				t.Fatal(err)
			}
			u.approved[u.filed[0]], u.under = 1, test.under
			func() {
				defer func() { _ = recover() }()
				if out, err := p.Grant(t.Context(), grantOf(t, "one", "b:asks1"), prepare); !errors.Is(err, pdp.ErrNotRecorded) || out.Allow {
					t.Errorf("%+v, %v", out, err)
				}
			}()
			if got := fmt.Sprint(u.settled); got != "[{in doubt <nil>}]" || fmt.Sprint(made.capabilityEnded) != test.made {
				t.Errorf("the approval %s, the capability %v", got, made.capabilityEnded)
			}
		})
	}
}
