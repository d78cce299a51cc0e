package approvals_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// An approver is shown the form of a request that waits, and their answer is their vote; others are
// shown nothing.
func TestFormAndRespond(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	gateway, mia := d.pep(), d.pep(authzenclient.WithKey(d.key["mia"]))
	s, err := approvals.Ask(t.Context(), gateway, denies(t, gateway, push(nil)))
	d.must(err)
	id := s.Approvals()[0]
	var nobody approvals.Person
	message, err := approvals.Form(t.Context(), gateway, id, nobody, "approve")
	if err != nil || !strings.Contains(string(message), `"method":"elicitation/create"`) {
		t.Fatalf("%s, %v", message, err)
	}
	accept := []byte(`{"action":"accept","content":{"approve":true,"reason":"fine"}}`)
	if status, err := approvals.Respond(t.Context(), gateway, id, nobody, accept); err == nil {
		t.Errorf("the gateway itself approves: %s", status)
	}
	for _, odd := range []string{"", ".", "..", "../../x", "none"} {
		if _, err := approvals.Respond(t.Context(), mia, odd, nobody, accept); err == nil {
			t.Errorf("%q was answered", odd)
		}
		if message, err := approvals.Form(t.Context(), mia, odd, nobody, ""); err == nil {
			t.Errorf("%q is %s", odd, message)
		}
	}
	if status, err := approvals.Respond(t.Context(), mia, id, nobody, []byte(`{"action":"cancel"}`)); err != nil || status != "pending" {
		t.Errorf("cancelled: %s, %v", status, err)
	}
	if status, err := approvals.Respond(t.Context(), mia, id, nobody, accept); err != nil || status != "approved" {
		t.Errorf("%s, %v", status, err)
	}
	if e := approvals.Use(t.Context(), gateway, stands(t, gateway, s.Task()), push(nil), nil).Discharge(t.Context(), nil); !e.Permitted() {
		t.Errorf("used: %v", e)
	}
	var failure *authzenclient.Error
	if _, err := approvals.Respond(t.Context(), mia, id, nobody, accept); !errors.As(err, &failure) || failure.Status != 409 || failure.Op != "respond" {
		t.Errorf("once more: %v", err)
	}
}

// A person's token goes to the PDP beside the gateway's key, and into no text.
func TestPerson(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOi.person.token"
	person, err := approvals.PersonWith(token)
	if err != nil {
		t.Fatal(err)
	}
	person = person.WithClient("agent", "a/b é%")
	for _, odd := range []string{"", "a b", "a\nb", "é"} {
		if _, err := approvals.PersonWith(odd); err == nil {
			t.Errorf("%q is a token", odd)
		}
	}
	hex := fmt.Sprintf("%x", token)
	for _, verb := range "bcdeEfFgGopqstTuUvwxX" {
		for _, flag := range []string{"", "+", "#"} {
			format := "%" + flag + string(verb)
			for _, v := range []any{person, &person, struct{ p approvals.Person }{person}, []approvals.Person{person}} {
				if text := strings.ToLower(fmt.Sprintf(format, v)); strings.Contains(text, "person.token") || strings.Contains(text, hex) {
					t.Errorf("%s prints %s", format, text)
				}
			}
		}
	}
	for name, test := range map[string]struct {
		a    said
		form bool // whether it is a form
		says bool // whether it is an answer about a1
	}{
		"a form":            {said{200, `{"jsonrpc":"2.0"}`, nil}, true, false},
		"an answer":         {said{200, `{"id":"a1","status":"pending"}`, nil}, true, true},
		"of another":        {said{200, `{"id":"a2","status":"approved"}`, nil}, true, false},
		"without a status":  {said{200, `{"id":"a1"}`, nil}, true, false},
		"a member twice":    {said{200, `{"id":"a1","status":"denied","status":"approved"}`, nil}, false, false},
		"a list":            {said{200, `[]`, nil}, false, false},
		"null":              {said{200, `null`, nil}, false, false},
		"HTML":              {said{200, `{"id":"a1","status":"approved"}`, []string{"Content-Type", "text/html"}}, false, false},
		"it quotes":         {said{404, `{"detail":"no person has ` + token + ` and ` + secret + `"}`, nil}, false, false},
		"moved":             {said{307, ``, []string{"Location", "EVIL/x"}}, false, false},
		"it may be counted": {said{503, `{}`, []string{"Retry-After", "1"}}, false, false},
	} {
		h, asked := fair(), []string{}
		h.before = func(r *http.Request) (said, bool) {
			asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Approver-Token")+" "+r.Header.Get("Approver-Client")+" "+r.Header.Get("Authorization"))
			return test.a, true
		}
		c := h.client(t, authzenclient.WithRetries(1))
		_, err1 := approvals.Form(t.Context(), c, "a1", person, "review")
		asks := len(asked)
		status, err2 := approvals.Respond(t.Context(), c, "a1", person.WithClient("agent", ""), []byte(`{"action":"accept"}`))
		votes := len(asked)
		message, err3 := approvals.Notification(t.Context(), c, "a1", person)
		if (err1 == nil) != test.form || (err2 == nil) != test.says || (status != "") != test.says || (err3 == nil) != test.form || (message != nil) != test.form {
			t.Errorf("%s: %v, %q %v, %s %v", name, err1, status, err2, message, err3)
		}
		by := func(client string) string { return " " + token + " " + client + " Bearer " + secret }
		if asked[0] != "GET /v1/approvals/a1/elicitation?form=review"+by("agent/a%2Fb%20%C3%A9%25") || votes != asks+1 || asked[asks] != "POST /v1/approvals/a1/response"+by("none") ||
			asked[votes] != "GET /v1/approvals/a1/authorization-notification"+by("agent/a%2Fb%20%C3%A9%25") {
			t.Errorf("%s: asked %v", name, asked)
		}
		if text := fmt.Sprint(err1, err2, err3); strings.Contains(text, "person.token") || strings.Contains(text, secret) {
			t.Errorf("%s says %s", name, text)
		}
	}
}
