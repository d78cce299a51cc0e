package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/etcdtest"
)

// askedFor asks on behalf of a person, as a gateway does.
func askedFor(t *testing.T, name string) func(*capability.Ask) {
	t.Helper()
	context, err := evaluation.NewObject(map[string]any{"person": evaluation.PersonOf(ofPersons, name)})
	must(t, err)
	return func(a *capability.Ask) { a.Context = context }
}

// TestCapabilitiesOfPersons: of all who share one client, each has a share of its own, whichever way it asks: through a gateway, by
// the exchange of its token, with or without one of the agent that acts for it, or by its token alone.
func TestCapabilitiesOfPersons(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(b *bank, person string) (text string){
		"gateway": func(b *bank, person string) string {
			_, text := b.requests("wallet", askedFor(t, person))
			return text
		},
		"exchange": func(b *bank, person string) string {
			return b.form(b.token("", ofPersons, person, claimSet{"client_id": "bot"}), "access_token", nil, "read").Encode()
		},
		"exchange for an actor": func(b *bank, person string) string {
			form := b.form(b.token("", ofPersons, person, claimSet{"client_id": "relay"}), "access_token", nil, "read")
			return changedTo(form, "actor_token", b.token("", ofAgents, "bot", nil), "actor_token_type", tokenType+"jwt").Encode()
		},
		"token": func(b *bank, person string) string {
			b.key[person] = "Bearer " + b.token("", ofShared, person, claimSet{"client_id": "bot"})
			_, text := b.requests(person, nil)
			return text
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBank(t, func(c *server.Config) {
				c.Capabilities.MaxLivePerHolder, c.Capabilities.MaxLivePerTenant, c.Capabilities.NewPerMinutePerHolder = 2, 9, 4
			})
			for _, c := range []struct {
				person string
				want   []string
			}{
				{"eve", []string{"granted", "granted", "many", "many", "many"}}, // two live, and five in a minute
				{"mia", []string{"granted", "granted", "many"}},
				{"zoe", []string{"granted", "many"}}, // which is all that the client has
			} {
				for n, want := range c.want {
					text := ask(b, c.person)
					if strings.HasPrefix(text, "grant_type") || strings.Contains(text, "subject_token=") {
						text = b.Do("POST", "/v1/token", text, "Content-Type", "application/x-www-form-urlencoded").Body
					}
					got := "many"
					if strings.Contains(text, `"granted":true`) || strings.Contains(text, `"access_token"`) {
						got = "granted"
					} else if !strings.Contains(text, "too many capabilities") {
						t.Fatal(text)
					}
					if got != want {
						t.Errorf("%s, request %d: %s", c.person, n, text)
					}
				}
			}
		})
	}
}

// requests asks for a capability for agent bot by somebody's credential.
func (w *wallet) requests(who string, change func(*capability.Ask)) (status int, text string) {
	w.t.Helper()
	body, err := w.asking(change, "read").MarshalJSON()
	must(w.t, err)
	return w.do(who, "POST", "/v1/capabilities", string(body))
}

// TestCapabilitiesByPerson: capabilities are listed and revoked by person, a caller's token sees its own alone, and the program that asked
// is told for whom an approval request is.
func TestCapabilitiesByPerson(t *testing.T) {
	t.Parallel()
	b := openBank(t, func(c *server.Config) { c.Capabilities.NewPerMinutePerHolder = 10 })
	b.Advance(time.Minute) // proofs need no nonce any more
	person := func(name string) string { return evaluation.PersonOf(ofPersons, name) }
	mia, eve := b.asksFor(201, askedFor(t, "mia"), "read"), b.asksFor(201, askedFor(t, "eve"), "read")
	nobody := b.asksFor(201, nil, "read")
	b.reply("wallet", "GET", "/v1/capabilities/"+mia.ID, "").is(t, "of mia", 200, `"person":"`+person("mia")+`"`)
	if _, text := b.do("wallet", "GET", "/v1/capabilities/"+nobody.ID, ""); strings.Contains(text, "person") {
		t.Error(text)
	}
	for query, want := range map[string]string{
		"?person=" + person("mia"):                        mia.ID,
		"?holder=agent:bot&person=" + person("eve"):       eve.ID,
		"?holder=agent:child&person=" + person("eve"):     "",
		"?person=" + person("zoe"):                        "",
		"?tenant=default&limit=1&person=" + person("eve"): eve.ID,
	} {
		if ids, _ := b.listed("warden", query); strings.Join(ids, " ") != want {
			t.Errorf("%s: %q, want %s", query, ids, want)
		}
	}
	const reason = `,"reason":"she left"}`
	b.reply("warden", "POST", "/v1/capabilities/revoke", `{"tenant_id":"default","person":"`+person("eve")+`"`+reason).is(t, "revoked", 200, `{"revoked":1}`)
	b.reply("warden", "POST", "/v1/capabilities/revoke", `{"tenant_id":"default","person":"`+person("eve")+`","all":true`+reason).is(t, "some and all", 400, `"/all"`)
	b.is("allow", b.call(mia, "b:read"))
	b.is("revoked", b.call(eve, "b:read"))

	b.key["mia-token"] = "Bearer " + b.token("", ofShared, "mia", claimSet{"client_id": "bot"})
	b.key["eve-token"] = "Bearer " + b.token("", ofShared, "eve", claimSet{"client_id": "bot"})
	b.as = "mia-token"
	own := b.asksFor(201, nil, "read")
	for _, query := range []string{"", "?limit=1", "?holder=agent:bot&limit=1", "?limit=1&person=" + evaluation.PersonOf(ofShared, "mia"), "?jkt=" + b.holder.Key().Thumbprint(), "?ancestor=" + own.ID} {
		if _, text := b.do("eve-token", "GET", "/v1/capabilities"+query, ""); text != `{"items":[],"next":""}` {
			t.Errorf("eve lists %s: %s", query, text)
		}
	}
	b.reply("mia-token", "GET", "/v1/capabilities?limit=1", "").is(t, "mia lists", 200, own.ID)
	// Nor can eve hand it on, learn by that what became of it, or have mia's requests counted by it.
	handOn := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "child"}, Key: newHolder(t, 8).Key(), Audience: "b", Tools: []string{"read"}}
	must(t, newHolder(t, 9).HandOn(&handOn, own.ID, issuer, b.Now()))
	body, err := handOn.MarshalJSON()
	must(t, err)
	for range 9 {
		b.reply("eve-token", "POST", "/v1/capabilities/"+own.ID+"/delegate", string(body)).is(t, "eve hands on", 400, `"/proof"`)
	}
	b.as = "mia-token"
	b.asksFor(201, nil, "read")
	b.reply("eve-token", "GET", "/v1/capabilities/"+own.ID, "").is(t, "eve looks", 404)
	b.reply("eve-token", "POST", "/v1/capabilities/"+own.ID+"/return", `{"reason":"x"}`).is(t, "eve returns", 404)
	b.reply("mia-token", "POST", "/v1/capabilities/"+own.ID+"/return", `{"reason":"x"}`).is(t, "mia returns", 200)
	b.reply("eve-token", "POST", "/v1/capabilities/"+own.ID+"/delegate", string(body)).is(t, "eve hands on what mia gave back", 400, `"/proof"`)

	b.as = ""
	waits := b.asksFor(http.StatusAccepted, askedFor(t, "eve"), "danger")
	b.reply("wallet", "GET", "/v1/approvals/"+waits.Approval.ID, "").is(t, "asked", 200, `"person":"`+person("eve")+`"`)
	if _, text := b.do("mia", "GET", "/v1/approvals/"+waits.Approval.ID, ""); !strings.Contains(text, `"pending"`) || strings.Contains(text, person("eve")) {
		t.Errorf("who decides sees %s", text)
	}
	stolen := func(a *capability.Ask) { askedFor(t, "mia")(a); a.ApprovalID = waits.Approval.ID }
	b.says("mia", waits.Approval.ID, "decision", yes, 200)
	if other := b.asksFor(http.StatusAccepted, stolen, "danger"); other.Approval.ID == waits.Approval.ID {
		t.Error("the approval counts for another person")
	}
	granted := b.asksFor(201, func(a *capability.Ask) { askedFor(t, "eve")(a); a.ApprovalID = waits.Approval.ID }, "danger")
	if other := b.asksFor(http.StatusAccepted, stolen, "danger"); other.ID == granted.ID {
		t.Error("another person gets what it granted")
	}
	if again := b.asksFor(201, func(a *capability.Ask) { askedFor(t, "eve")(a); a.ApprovalID = waits.Approval.ID }, "danger"); again.Token != granted.Token {
		t.Error("who asks again gets another")
	}
}

// TestClusterCapabilitiesOfPersons: a person has one share at all replicas, and ends nothing of another person.
func TestClusterCapabilitiesOfPersons(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	var all []*wallet
	for n, c := range g.all {
		must(t, c.Stop(t.Context()))
		c.open(capabilityBundle(), g.config(n), func(c *server.Config) {
			c.PublicURL, c.Capabilities.MaxLivePerHolder = issuer, 3
		})
		all = append(all, &wallet{counter: c, holder: newHolder(t, 1)})
	}
	takesProofs(t, all...)
	for _, person := range []string{"eve", "mia"} {
		granted := 0
		for n := range 8 {
			switch status, text := all[n%2].requests("wallet", askedFor(t, person)); status {
			case http.StatusCreated:
				granted++
			case http.StatusTooManyRequests:
			default:
				t.Fatalf("%d %s", status, text)
			}
		}
		if ids, _ := all[0].listed("warden", "?person="+evaluation.PersonOf(ofPersons, person)); granted != 3 || len(ids) != 3 {
			t.Errorf("%d are granted of %s, and listed %d", granted, person, len(ids))
		}
	}
	all[1].reply("warden", "POST", "/v1/capabilities/revoke", `{"tenant_id":"default","person":"`+evaluation.PersonOf(ofPersons, "eve")+`","reason":"x"}`).is(t, "revoked", 200, `{"revoked":3}`)
	for n, want := range []string{"", "&state=active"} {
		ids, _ := all[n].listed("warden", "?person="+evaluation.PersonOf(ofPersons, "mia")+want)
		if len(ids) != 3 {
			t.Errorf("%d of mia are left", len(ids))
		}
	}
	if status, text := all[0].requests("wallet", askedFor(t, "eve")); status != http.StatusCreated {
		t.Errorf("eve has none, and asks: %d %s", status, text)
	}
}
