package server_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/signing"
	"policy-service/pdp/pdptest"
)

const (
	bindingType = "access-request-binding+jwt"
	stateType   = "access-request-approval+jwt"
)

// signs makes a token with the server's own key, which nobody else has.
func (c *counter) signs(claims any, typ string) string {
	c.t.Helper()
	keys, err := signing.Open(c.data, slog.New(slog.DiscardHandler))
	must(c.t, err)
	payload, err := json.Marshal(claims)
	must(c.t, err)
	token, err := keys.Sign(payload, typ)
	must(c.t, err)
	return token
}

// claimed reads what a token says.
func claimed[T any](t *testing.T, token string) (claims T) {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must(t, err)
	must(t, json.Unmarshal(payload, &claims))
	return claims
}

// forged are tokens that are not of the server's key, by how they came about; each says
// what the true one does.
func forged(t *testing.T, token, typ string) map[string]string {
	t.Helper()
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	var header struct {
		KeyID string `json:"kid"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[0])
	must(t, err)
	must(t, json.Unmarshal(text, &header))
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	sign := func(algorithm jose.SignatureAlgorithm, key any, kid string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, new(jose.SignerOptions).WithType(jose.ContentType(typ)))
		must(t, err)
		signed, err := signer.Sign(payload)
		must(t, err)
		made, err := signed.CompactSerialize()
		must(t, err)
		return made
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"alg":"none","kid":%q,"typ":%q}`, header.KeyID, typ)))
	flipped := []byte(parts[2])
	if flipped[5]++; flipped[5] == 'z'+1 || flipped[5] == 'Z'+1 || flipped[5] == '9'+1 {
		flipped[5] = 'b'
	}
	return map[string]string{
		"another key":            sign(jose.EdDSA, key, header.KeyID),
		"another key by its own": sign(jose.EdDSA, key, "unknown"),
		"a shared secret":        sign(jose.HS256, []byte(strings.Repeat("k", 32)), header.KeyID),
		"no algorithm":           none + "." + parts[1] + ".",
		"no signature":           parts[0] + "." + parts[1] + ".",
		"another signature":      parts[0] + "." + parts[1] + "." + string(flipped),
		"two parts":              parts[0] + "." + parts[1],
		"four parts":             token + ".",
		"a space":                " " + token,
		"nothing":                "x",
	}
}

// Whatever is sent beside a true approval, it goes through with exactly what was approved
// only; and nothing of it uses the approval up.
func TestAccessRequestAttacks(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	presenting, of := p.granted(wants("push", push))
	id := of.Result.Approval.ID
	true_ := wants("push", push+","+presenting)
	change := func(old, new string) string {
		changed := strings.Replace(true_, old, new, 1)
		if changed == true_ {
			t.Fatalf("%s changes nothing", old)
		}
		return changed
	}
	for name, attack := range map[string]struct {
		p        program
		question string
		reason   evaluation.Reason
	}{
		"another argument":        {p, change(`"main"`, `"master"`), evaluation.ApprovalOutOfScope},
		"one more":                {p, change(`"n":7`, `"n":7,"force":true`), evaluation.ApprovalOutOfScope},
		"one less":                {p, change(`,"n":7`, ``), evaluation.ApprovalOutOfScope},
		"a string for a number":   {p, change(`"n":7`, `"n":"7"`), evaluation.ApprovalOutOfScope},
		"another member":          {p, change(`"context":{`, `"context":{"more":1,`), evaluation.ApprovalOutOfScope},
		"another subject":         {p, change(`"bot"`, `"bat"`), evaluation.ApprovalOutOfScope},
		"another type of subject": {p, change(`"agent"`, `"user"`), evaluation.ApprovalOutOfScope},
		"a property of it":        {p, change(`"id":"bot"`, `"id":"bot","properties":{"a":1}`), evaluation.ApprovalOutOfScope},
		"another tool":            {p, change(`"push"`, `"stop"`), evaluation.ApprovalOutOfScope},
		"on whose behalf":         {p, change(`"context":{`, `"context":{"on_behalf_of":[{"type":"user","id":"eve"}],`), evaluation.ApprovalOutOfScope},
		"another PEP":             {c.program("other-asker"), true_, evaluation.ApprovalUnverifiable},
		"another tenant":          {p.in("acme"), true_, evaluation.ApprovalUnverifiable},
		"a guessed id":            {p, wants("push", push+`,"approval":{"id":"01900000-0000-7000-8000-000000000000"}`), evaluation.ApprovalUnverifiable},
		"the id and no state":     {c.program("other-asker"), wants("push", push+`,"approval":{"id":"`+id+`"}`), evaluation.ApprovalUnverifiable},
		"a forbid":                {p, change(`"branch"`, `"blocked":true,"branch"`), evaluation.ApprovalPolicyDenied},
	} {
		a := attack.p.evaluates(attack.question)
		if a.Decision || a.Context.Reason != attack.reason {
			t.Errorf("%s: got %s, want %s", name, a.text, attack.reason)
		}
		if item := attack.p.batch("", attack.question)[0]; item.plain() != a.plain() {
			t.Errorf("%s, in a batch: got %s, want %s", name, item.plain(), a.plain())
		}
	}
	for name, context := range map[string]string{
		"the word alone, of something else": push + `,"more":1,"justification":"approved"`, "only said": push + `,"approved":true,"evaluation_id":"` + id + `"`, "another word": push + `,"justification":"Approved"`,
	} {
		if a := p.evaluates(wants("push", context)); a.Decision || a.Context.Reason != evaluation.ApprovalRequired || a.Context.Request == nil {
			t.Errorf("%s: got %s", name, a.text)
		}
	}
	c.program("explainer").evaluates(true_, "X-Explain", "true").denies(t, "to be explained", "")
	c.stands(t, "a mismatch burned it", "mia", id, "approved", 0)
	same := strings.NewReplacer(`"branch":"main","n":7`, `"n":70e-1,"branch":"\u006dain"`).Replace(true_)
	p.evaluates(strings.Replace(same, `"context":{`, `"context":{"trace":"x","nothing":null,`, 1)).allows(t, "another way to write it is another request")
	p.evaluates(true_).denies(t, "replay", "")
	// Large numbers differ where a float would not tell them apart; 1.0 and 1 do not.
	for name, with := range map[string]func(n, more string) string{
		"the context": func(n, more string) string { return wants("push", `"arguments":{"n":`+n+`}`+more) },
		"the resource": func(n, more string) string {
			return strings.Replace(wants("push", push+more), `"id":"push"`, `"id":"push","properties":{"n":`+n+`}`, 1)
		},
	} {
		presenting, _ := p.granted(with("9007199254740992", ""))
		p.evaluates(with("9007199254740993", ","+presenting)).denies(t, fmt.Sprintf("another number in %s", name), evaluation.ApprovalOutOfScope)
		p.evaluates(with("9007199254740992.0", ","+presenting)).allows(t, fmt.Sprintf("the same number in %s", name))
	}
}

// Nobody answers for themselves about what was submitted: not with the credential that
// asked, and not for the subject, whether the client names them as its actor or not.
func TestAccessRequestSelfApproval(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	as := func(typ, id, context string) string {
		return strings.Replace(wants("push", context), `"type":"agent","id":"bot"`, fmt.Sprintf(`"type":%q,"id":%q`, typ, id), 1)
	}
	for name, test := range map[string]struct {
		asker, question, client, who string
		status                       int
	}{
		"with the credential that asked": {"both", wants("push", `"n":1`), ``, "both", 403},
		"and with the actor named":       {"both", wants("push", `"n":2`), `{"actor":{"id":"bot"}}`, "both", 403},
		"the subject":                    {"asker", as("user", "mia", `"n":3`), ``, "mia", 404},
		"the actor":                      {"asker", as("user", "mia", `"n":4`), `{"id":"app","actor":{"id":"mia"}}`, "mia", 404},
		"the actor by another name":      {"asker", as("user", "mia", `"n":5`), `{"actor":{"id":"mia"}}`, "mia.admin", 404},
		"whose agent the actor is":       {"asker", as("agent", "helper", `"n":6`), `{"actor":{"id":"helper"}}`, "noah", 404},
	} {
		p := c.program(test.asker)
		members := test.question + "," + p.denied(test.question).denial()
		if test.client != "" {
			members += `,"client":` + test.client
		}
		asked := p.submits(members)
		if asked.status != 202 {
			t.Fatalf("%s: got %d %s", name, asked.status, asked.text)
		}
		items, _ := c.inbox("zoe", "?limit=200")
		if test.who == "both" {
			items, _ = c.inbox("mia", "?limit=200")
		}
		if len(items) != 1 {
			t.Fatalf("%s: %d wait", name, len(items))
		}
		id := items[0].ID
		c.says(test.who, id, "decision", yes, test.status)
		c.says(test.who, id, "response", `{"action":"accept","content":{"approve":true}}`, test.status)
		p.looks(asked.Task.ID).stands(t, name, "pending")
		more := fmt.Sprintf(`,"approval":{"id":%q}`, id)
		p.evaluates(strings.TrimSuffix(test.question, "}")+more+"}").denies(t, fmt.Sprintf("%s: it goes through", name), "")
		other := "noah"
		if test.who == other {
			other = "zoe"
		}
		c.says(other, id, "decision", no, 200) // somebody else may, and the next one is alone
	}
}

// A state counts where it is by this server and for it, of this approval, and says what
// the request says; where it does not, the approval is not even looked for.
func TestApprovalStates(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	_, other := p.granted(wants("push", `"other":1`))
	denied := p.denied(question)
	_, of := p.granted(question)
	reference := of.Result.Approval
	presented := func(id, state string) answer {
		return p.evaluates(wants("push", fmt.Sprintf(`%s,"approval":{"id":%q,"state":%s}`, push, id, state)))
	}
	claims := claimed[evaluation.StateClaims](t, reference.State)
	with := func(change func(*evaluation.StateClaims)) string {
		changed := claims
		change(&changed)
		return c.signs(changed, stateType)
	}
	states := forged(t, reference.State, stateType)
	states["of another approval"] = other.Result.Approval.State
	states["the binding token"] = denied.Context.Request.BindingToken
	states["for another purpose"] = c.signs(claims, "JWT")
	states["in the binding's place"] = c.signs(claims, bindingType)
	states["by somebody else"] = with(func(s *evaluation.StateClaims) { s.Issuer = "https://other.example.com" })
	states["by a tenant"] = with(func(s *evaluation.StateClaims) {
		s.Issuer, s.Audience = atPublic+"/tenants/acme", atPublic+"/tenants/acme"
	})
	states["for somebody else"] = with(func(s *evaluation.StateClaims) { s.Audience = "https://other.example.com" })
	states["for the requests"] = with(func(s *evaluation.StateClaims) { s.Audience = atPublic + "/access/v1/requests" })
	states["of an id besides"] = with(func(s *evaluation.StateClaims) { s.ApprovalID = other.Result.Approval.ID })
	states["of no id"] = with(func(s *evaluation.StateClaims) { s.ApprovalID = "" })
	states["of another request"] = with(func(s *evaluation.StateClaims) {
		s.Binding = claimed[evaluation.StateClaims](t, other.Result.Approval.State).Binding
	})
	states["of nothing"] = c.signs([]int{}, stateType)
	for name, state := range states {
		a := presented(reference.ID, fmt.Sprintf("%q", state))
		if a.Decision || a.Context.Reason != evaluation.ApprovalUnverifiable || a.Context.NextAction != "none" || a.Context.Request != nil {
			t.Errorf("%s: got %s", name, a.text)
		}
	}
	for _, end := range []int64{0, pdptest.Now.Unix()} {
		state := with(func(s *evaluation.StateClaims) { s.Expires = end })
		presented(reference.ID, fmt.Sprintf("%q", state)).denies(t, fmt.Sprintf("that ended at %d", end), evaluation.ApprovalExpired)
	}
	for _, state := range []string{"7", "{}", "true", "[]", `""`} {
		presented(reference.ID, state).denies(t, state, evaluation.ApprovalUnverifiable)
	}
	presented(other.Result.Approval.ID, fmt.Sprintf("%q", reference.State)).denies(t, "with another id", "")
	p.reply("asker", "POST", evaluationPath, "{"+wants("push", fmt.Sprintf(`%s,"approval":{"state":%q}`, push, reference.State))+"}").is(t, "without an id", http.StatusBadRequest)
	for _, state := range []string{with(func(*evaluation.StateClaims) {}), "null"} {
		if state != "null" {
			state = fmt.Sprintf("%q", state)
		}
		presented(reference.ID, state).allows(t, fmt.Sprintf("%.20s", state))
		_, of = p.granted(question)
		reference = of.Result.Approval
		claims.ApprovalID = reference.ID
	}
}

// A submission counts with the binding token of a denial of this very request, by this
// server and for it, as long as the denial is fresh.
func TestBindingTokens(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	denied := p.denied(question)
	token := denied.Context.Request.BindingToken
	presenting, of := p.granted(wants("push", `"done":1`))
	claims := claimed[evaluation.BindingClaims](t, token)
	with := func(change func(*evaluation.BindingClaims)) string {
		changed := claims
		change(&changed)
		return c.signs(changed, bindingType)
	}
	tokens := forged(t, token, bindingType)
	tokens["of another denial"] = p.denied(wants("push", `"other":1`)).Context.Request.BindingToken
	tokens["of another caller's"] = c.program("other-asker").denied(question).Context.Request.BindingToken
	tokens["of another tenant"] = p.in("acme").denied(question).Context.Request.BindingToken
	tokens["a state"] = of.Result.Approval.State
	tokens["in the state's place"] = c.signs(claims, stateType)
	tokens["by somebody else"] = with(func(b *evaluation.BindingClaims) { b.Issuer = "https://other.example.com" })
	tokens["for somebody else"] = with(func(b *evaluation.BindingClaims) { b.Audience = "https://other.example.com/access/v1/requests" })
	tokens["for the decisions"] = with(func(b *evaluation.BindingClaims) { b.Audience = atPublic })
	tokens["of another evaluation"] = with(func(b *evaluation.BindingClaims) { b.EvaluationID = "x" })
	tokens["fresh for longer"] = with(func(b *evaluation.BindingClaims) { b.DenialExpiresAt = b.DenialExpiresAt.Add(time.Hour) })
	tokens["of fewer members"] = with(func(b *evaluation.BindingClaims) { b.Members = nil })
	tokens["of nothing"] = with(func(b *evaluation.BindingClaims) { b.Binding = "" })
	tokens["none"] = ""
	for name, forged := range tokens {
		p.submits(question+","+strings.Replace(denied.denial(), token, forged, 1)).refused(t, name, 400, evaluation.InvalidDenialBinding)
	}
	stale := with(func(b *evaluation.BindingClaims) { b.Expires = pdptest.Now.Unix() })
	p.submits(question+","+strings.Replace(denied.denial(), token, stale, 1)).refused(t, "stale", 410, evaluation.ExpiredDenial)
	p.evaluates(wants("push", fmt.Sprintf(`%s,"approval":{"id":%q,"state":%q}`, push, of.Result.Approval.ID, token))).denies(t, "a binding token for a state", "")
	c.nobodyIsAsked(t)
	p.submits(question+","+denied.denial()).is(t, "as it came", 202)
	p.evaluates(wants("push", `"done":1,`+presenting)).allows(t, "the answer")
}

// What was signed before the key was rotated counts until it is rotated again.
func TestAccessRequestAfterRotation(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	rotated := func() {
		t.Helper()
		_, err := signing.Rotate(c.data)
		must(t, err)
		must(t, c.Stop(t.Context()))
		c.open(pdptest.Bundle(approvalFiles()), public)
	}
	twice := p.denied(wants("push", `"twice":1`))
	first, _ := p.granted(wants("push", push))
	rotated()
	p.evaluates(wants("push", push+","+first)).allows(t, "a state of the key before")
	asked := p.submits(wants("push", `"twice":1`) + "," + twice.denial())
	if asked.status != 202 {
		t.Errorf("a denial of the key before: %d %s", asked.status, asked.text)
	}
	c.says("mia", c.waiting(asked), "decision", yes, 200)
	second := presents(p.looks(asked.Task.ID).Result)
	denied := p.denied(wants("push", push))
	rotated()
	rotated()
	p.evaluates(wants("push", `"twice":1,`+second)).denies(t, "a state of a key that was thrown out", evaluation.ApprovalUnverifiable)
	p.submits(wants("push", push)+","+denied.denial()).refused(t, "a denial of a key that was thrown out", 400, evaluation.InvalidDenialBinding)
	p.evaluates(wants("push", `"twice":1,`+presents(p.looks(asked.Task.ID).Result))).allows(t, "the task has no state of the new key")
}
