package authzenclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

const secret = "psk_abc_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

// Servers, proxies and transports like to quote what they were sent. No error of ours does.
func TestNoErrorHoldsTheKey(t *testing.T) {
	t.Parallel()
	quotes := func(status int) step {
		return func(r *http.Request) (*http.Response, error) {
			text, _ := json.Marshal("you sent " + r.Header.Get("Authorization"))
			said := fmt.Sprintf(`{"detail":%s,"decision":false,"context":{"error":{"message":%s}},"evaluations":[{"decision":false,"context":{"error":{"message":%s}}}]}`, text, text, text)
			return answer(status, said)(r)
		}
	}
	for name, s := range map[string]step{
		"401":     quotes(401),
		"503":     quotes(503),
		"item":    quotes(200),
		"network": func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("sent %v", r.Header) },
		"body": func(r *http.Request) (*http.Response, error) {
			a, err := yes(r)
			a.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), failing{r.Header.Get("Authorization")}))
			return a, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := scripted(t, []step{s}, authzenclient.WithKey(secret))
			decisions := append(c.EvaluateBatch(t.Context(), "", question), c.Evaluate(t.Context(), question))
			for _, d := range decisions {
				if d.Err() == nil {
					t.Fatal("no error")
				}
				for err := d.Err(); err != nil; err = errors.Unwrap(err) {
					if text := fmt.Sprintf("%v %+v %#v %s", err, err, err, d); strings.Contains(text, secret) {
						t.Errorf("%s", text)
					}
				}
			}
		})
	}
}

// Long texts are cut, and no part of a credential stays before the cut.
func TestNoErrorHoldsHalfAKey(t *testing.T) {
	t.Parallel()
	const person = "eyJhbGciOi.0123456789.person.token"
	as, err := approvals.PersonWith(person)
	if err != nil {
		t.Fatal(err)
	}
	for pad := 440; pad <= 520; pad += 8 {
		text := strings.Repeat("x", pad) + secret + " " + person
		said := fmt.Sprintf(`{"detail":"%[1]s","decision":false,"context":{"error":{"message":"%[1]s"}}}`, text)
		item := fmt.Sprintf(`{"evaluations":[{"decision":false,"context":{"error":{"message":"%s"}}}]}`, text)
		refuses, _ := scripted(t, []step{answer(401, said)}, authzenclient.WithKey(secret))
		decides, _ := scripted(t, []step{answer(200, said)}, authzenclient.WithKey(secret))
		batches, _ := scripted(t, []step{answer(200, item)}, authzenclient.WithKey(secret))
		breaks, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
			return nil, errors.New(strings.Repeat("x", pad) + fmt.Sprint(r.Header))
		}}, authzenclient.WithKey(secret))
		_, shown := approvals.Form(t.Context(), refuses, "a1", as, "")
		_, voted := approvals.Respond(t.Context(), refuses, "a1", as, []byte(`{}`))
		_, broken := approvals.Form(t.Context(), breaks, "a1", as, "")
		for name, err := range map[string]error{
			"refused": refuses.Evaluate(t.Context(), question).Err(), "decided": decides.Evaluate(t.Context(), question).Err(),
			"item": batches.EvaluateBatch(t.Context(), "", question)[0].Err(), "network": breaks.Evaluate(t.Context(), question).Err(),
			"form": shown, "vote": voted, "form, network": broken,
		} {
			if err == nil {
				t.Fatal(name, "no error")
			}
			for ; err != nil; err = errors.Unwrap(err) {
				said := fmt.Sprintf("%v %#v", err, err)
				if strings.Contains(said, secret[:8]) || strings.Contains(said, person[:8]) && strings.Contains(name, "form") {
					t.Errorf("%s, %d: %s", name, pad, said)
				}
			}
		}
	}
}

// The texts of a deny are shown. An allow stays as it came.
func TestNoDenyRepeatsAKey(t *testing.T) {
	t.Parallel()
	context := fmt.Sprintf(`{"reason":%[1]q,"x":{%[1]q:["\u0070%[2]s",1.50]}}`, secret, secret[1:])
	for decision, want := range map[bool]string{false: `{"reason":"…","x":{"…":["…",1.50]}}`, true: context} {
		c, _ := scripted(t, []step{answer(200, fmt.Sprintf(`{"decision":%t,"context":%s}`, decision, context))}, authzenclient.WithKey(secret))
		if d := c.Evaluate(t.Context(), question); d.Permitted() != decision || string(d.Context()) != want {
			t.Errorf("%t: %s, want %s", decision, d.Context(), want)
		}
	}
}

// A short session is a part of many texts, and no secret.
func TestNoSessionGarblesADeny(t *testing.T) {
	t.Parallel()
	c, _ := scripted(t, []step{answer(200, `{"decision":false,"context":{"reason":"until 11:11"}}`)})
	d := c.Evaluate(t.Context(), question, authzenclient.ShowCapability(evaluation.CapabilityShown{Token: "t", Proof: "p", Session: "1"}))
	if d.Reason() != "until 11:11" || string(d.Context()) != `{"reason":"until 11:11"}` {
		t.Error(d, string(d.Context()))
	}
}

type failing struct{ text string }

func (f failing) Read([]byte) (int, error) { return 0, errors.New("failed with " + f.text) }

func TestTokenSource(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]authzenclient.TokenSource{
		"fails":      func(context.Context) (string, error) { return "", errors.New("no token: " + secret) },
		"empty":      func(context.Context) (string, error) { return "", nil },
		"two lines":  func(context.Context) (string, error) { return secret + "\r\nX-Admin: true", nil },
		"with space": func(context.Context) (string, error) { return "a b", nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, s := scripted(t, []step{yes}, authzenclient.WithToken(source))
			e := wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.NotAsked)
			if strings.Contains(e.Error(), secret) || s.asked.Load() != 0 {
				t.Errorf("%v after %d requests", e, s.asked.Load())
			}
		})
	}
}

// A redirect is where a token would leave its origin: none is followed, by no method.
func TestNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s came, with credentials %q", r.Method, r.URL, r.Header.Get("Authorization"))
		says(`{"decision":true}`)(w, r)
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := stub(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) })
		follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
		c := newClient(t, url, authzenclient.WithHTTPClient(follows), authzenclient.WithKey(secret))
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Odd)
		if err := c.Discover(t.Context()); err == nil {
			t.Error("discovery followed a redirect")
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	echo := func(text string) step {
		return func(r *http.Request) (*http.Response, error) {
			return answer(200, `{"decision":true}`, "X-Request-ID", strings.ReplaceAll(text, "ID", r.Header.Get("X-Request-ID")))(r)
		}
	}
	id := func() string { return "id-1" }
	for name, test := range map[string]struct {
		step    step
		options []authzenclient.Option
		permit  bool
	}{
		"echoed":             {echo("ID"), nil, true},
		"another":            {echo("IDx"), nil, false},
		"empty":              {echo(""), nil, false},
		"none":               {yes, nil, true},
		"none, strict":       {yes, []authzenclient.Option{authzenclient.WithRequestIDs(id, true)}, false},
		"echoed, strict":     {echo("ID"), []authzenclient.Option{authzenclient.WithRequestIDs(id, true)}, true},
		"not sent":           {echo("other"), []authzenclient.Option{authzenclient.WithRequestIDs(nil, true)}, true},
		"two lines":          {echo("ID"), []authzenclient.Option{authzenclient.WithRequestIDs(func() string { return "a\nb" }, false)}, false},
		"too long":           {echo("ID"), []authzenclient.Option{authzenclient.WithRequestIDs(func() string { return strings.Repeat("x", 257) }, false)}, false},
		"empty, though sent": {echo("ID"), []authzenclient.Option{authzenclient.WithRequestIDs(func() string { return "" }, false)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := scripted(t, []step{test.step}, test.options...)
			if d := c.Evaluate(t.Context(), question); d.Permitted() != test.permit {
				t.Errorf("%v", d)
			}
		})
	}
	c, _ := scripted(t, []step{answer(200, `{"decision":true}`, "X-Decision-Id", "d-1")}, authzenclient.WithRequestIDs(id, false))
	if d := c.Evaluate(t.Context(), question); d.RequestID() != "id-1" || d.ID() != "d-1" {
		t.Errorf("request %q, decision %q", d.RequestID(), d.ID())
	}
}
