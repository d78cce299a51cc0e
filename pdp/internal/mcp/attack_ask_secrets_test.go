package mcp_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/seal"
	"policy-service/pdp/pdptest/mcptest"
)

// The token of a person goes to the PDP beside the gateway's key, on the two routes of a form, and nowhere else: not to a
// server, and into no log, error, state, id or file. Nor does the gateway's key leave for anybody but the PDP. What a client
// brings in headers of those names changes nothing of it, and makes it nobody else: the PDP is asked as it is without them.
func TestAskAttackSecrets(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		tap := newWiretap(t)
		w := newPeople(t, land{change: hasten, before: tap.before, serve: tap.serve})
		alice, hurried := w.patient().takesForms(era, nil), w.client(era)
		hurried.token = alice.token
		bobs := w.issuer.Token(t, mcptest.Claims{"sub": "bob"})
		var seen kept
		// Agreed to, refused, given up, changed, answered in a way that cannot be, and asked about while the PDP fails.
		for n, answer := range []string{saysYes, saysNo, saysNothing, `{"action":"accept","content":{"approve":true,"arguments.n":9}}`, `{"action":"` + alice.token[len(alice.token)-40:] + `"}`, `{"action":"accept","content":{"approve":true,"reason":"` + bobs[:20] + `"}}`} {
			d := alice.dialogue("review", fmt.Sprintf(`{"n":%d}`, n))
			_, _ = seen.Write(d.asked)
			d.answer(alice, answer)
			got := d.end()
			_, _ = io.WriteString(&seen, got.text)
			if n == 0 != got.ran() && n != 5 && !strings.Contains(got.text, `"isError":true`) {
				t.Errorf("%s: %s", answer, got)
			}
			w.opened(t, alice, d, fmt.Sprintf(`{"n":%d}`, n))
		}
		for n, status := range []int{400, 401, 403, 404, 409, 422, 429, 500, 503} {
			tap.answers(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool {
				if !answersForm(r) && !(showsForm(r) && n%2 == 0) {
					return false
				}
				rw.Header().Set("Content-Type", "application/problem+json")
				rw.WriteHeader(status)
				_, _ = fmt.Fprintf(rw, `{"detail":"the token %s of key %s is no good"}`, r.Header.Get("Approver-Token"), r.Header.Get("Authorization"))
				return true
			})
			_, _ = io.WriteString(&seen, w.insists(hurried, "confirm", fmt.Sprintf(`{"s":%d}`, status)).text)
		}
		tap.answers(nil)
		posed := w.issuer.Token(t, mcptest.Claims{"sub": "mia"})
		if got := hurried.call("second-person", `{"n":1}`, posing(posed)...); owed(got) == "" {
			t.Errorf("posing: %s", got)
		}
		before := len(tap.questions())
		for _, headers := range [][]string{nil, posing(posed)} {
			hurried.call("free", `{}`, headers...).runs(t, "posing by", headers)
		}
		if q := tap.questions()[before:]; len(q) != 2 || q[0] != q[1] {
			t.Errorf("the PDP is asked %q", q)
		}
		beside := 0
		for _, q := range tap.all() {
			for name, values := range q.header {
				text := strings.Join(values, " ")
				switch {
				case strings.Contains(text, posed) || strings.Contains(text, bobs) || strings.HasPrefix(name, "X-Forwarded-A") || name == "Cookie":
					t.Errorf("%s %s has a posed token in %s", q.verb, q.path, name)
				case name == "Authorization" && text == "Bearer "+w.keys["gateway"]:
				case name == "Approver-Token" && text == alice.token && len(values) == 1 && q.ofPerson():
					beside++
				case strings.Contains(text, alice.token) || strings.Contains(text, w.keys["gateway"]) || name == "Approver-Token":
					t.Errorf("%s %s has a secret in %s", q.verb, q.path, name)
				}
			}
			if strings.Contains(q.body, alice.token) || strings.Contains(q.path, alice.token) {
				t.Errorf("%s %s has the token in its body", q.verb, q.path)
			}
		}
		if beside < 6 {
			t.Errorf("the token went to the PDP %d times", beside)
		}
		secrets := map[string]string{"the token": alice.token, "a part of the token": alice.token[len(alice.token)-40:], "the gateway's key": w.keys["gateway"], "a posed token": posed}
		everywhere := map[string]string{"the log": w.logs.String(), "what the client is told": seen.String() + alice.heard.String() + hurried.heard.String()}
		for n, g := range w.rec.Got() {
			everywhere[fmt.Sprintf("message %d to the server", n)] = string(g.Body) + g.Target + fmt.Sprint(g.Header)
			if strings.Contains(fmt.Sprint(g.Header), "Approver") {
				t.Errorf("the server gets the headers %q", g.Header)
			}
		}
		for what, secret := range secrets {
			for where, text := range everywhere {
				if strings.Contains(text, secret) {
					t.Errorf("%s is in %s", what, where)
				}
			}
			if what == "the gateway's key" {
				continue
			}
			orFail(t, filepath.WalkDir(w.data, func(name string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				content, err := os.ReadFile(name)
				if bytes.Contains(content, []byte(secret)) {
					t.Errorf("%s is in the PDP's file %s", what, e.Name())
				}
				return err
			}))
		}
	})
}

// opened fails if the state, or the id, of what a client was asked does not open with the gateway's keys, or has a secret.
func (w *world) opened(t testing.TB, v *visitor, d *dialogue, arguments string) {
	t.Helper()
	ring := w.ring(t, siegeResource)
	texts, bound := []string{strings.Trim(d.legacy.id, `"`)}, []byte(v.session)
	if v.era == "modern" {
		texts, bound = []string{d.modern.State, d.modern.key()}, boundTo(t, w.principalOf(t, v), "rec", d.tool, arguments)
	}
	for _, text := range texts {
		inside, ok := ring.Open(seal.Approval, bound, text)
		if !ok {
			t.Errorf("%s does not open", text)
		}
		for what, secret := range map[string]string{"the token": v.token, "a part of it": v.token[:60], "the gateway's key": w.keys["gateway"]} {
			if strings.Contains(string(inside), secret) {
				t.Errorf("%s is in %s", what, inside)
			}
		}
	}
}
