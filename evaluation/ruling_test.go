package evaluation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
)

func TestDecodeRuling(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"decision":"approve","reason":"fine"}`:                                                  "",
		`{"decision":"deny","reason":"no","version":null,"to":null,"other":1}`:                    "",
		`{"decision":"delegate","reason":"away","to":"User::\"mia\""}`:                            "",
		`{"decision":"approve","reason":"fine","version":3,"valid_until":"2026-01-02T03:04:05Z"}`: "",
		`{"decision":"approve","reason":"fine","version":3.0}`:                                    "",
		`{"decision":"approve"}`:                                                 "/reason",
		`{"decision":"approve","reason":" "}`:                                    "/reason",
		`{"decision":"approve","reason":"` + strings.Repeat("x", 1025) + `"}`:    "/reason",
		`{"reason":"fine"}`:                                                      "/decision",
		`{"decision":"Approve","reason":"fine"}`:                                 "/decision",
		`{"decision":true,"reason":"fine"}`:                                      "/decision",
		`{"decision":"approve","reason":"fine","version":0}`:                     "/version",
		`{"decision":"approve","reason":"fine","version":1.5}`:                   "/version",
		`{"decision":"approve","reason":"fine","version":"1"}`:                   "/version",
		`{"decision":"approve","reason":"fine","version":1e99}`:                  "/version",
		`{"decision":"approve","reason":"fine","to":"x"}`:                        "/to",
		`{"decision":"delegate","reason":"fine"}`:                                "/to",
		`{"decision":"deny","reason":"no","valid_until":"2026-01-02T03:04:05Z"}`: "/valid_until",
		`{"decision":"approve","reason":"fine","valid_until":"tomorrow"}`:        "/valid_until",
		`{"decision":"approve","decision":"deny","reason":"fine"}`:               "/decision",
	} {
		_, err := evaluation.DecodeRuling([]byte(body), evaluation.DefaultLimits())
		var bad *evaluation.Error
		if errors.As(err, &bad) && bad.Pointer != want || (err == nil) != (want == "") {
			t.Errorf("%.80s: got %v, want %q", body, err, want)
		}
	}
	r, err := evaluation.DecodeRuling([]byte(`{"decision":"approve","reason":"fine","version":3,"valid_until":"2026-01-02T03:04:05Z"}`), evaluation.DefaultLimits())
	if want := (evaluation.Ruling{Decision: "approve", Reason: "fine", Version: 3, ValidUntil: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}); err != nil || r != want {
		t.Errorf("got %+v %v", r, err)
	}
	if r, err := evaluation.DecodeWithdrawal(nil, evaluation.DefaultLimits()); err != nil || r != (evaluation.Ruling{}) {
		t.Errorf("got %+v %v", r, err)
	}
}

// TestDecodeCancellation: the reason is a code, and the comment is in words; both are kept.
func TestDecodeCancellation(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	long := strings.Repeat("x", limits.Detail)
	for body, want := range map[string]string{
		``: "", `{}`: "", `{"reason":"changed"}`: "changed", `{"comment":"no more"}`: "no more", `{"reason":"changed","comment":"no more"}`: "changed: no more",
		`{"reason":"changed","comment":null}`: "changed", `{"comment":"` + long + `"}`: long, `{"more":1}`: "",
	} {
		if why, err := evaluation.DecodeCancellation([]byte(body), limits); why != want || err != nil {
			t.Errorf("%s: got %q, %v", body, why, err)
		}
	}
	for _, body := range []string{`7`, `{"reason":7}`, `{"comment":7}`, `{"reason":"r","comment":"` + long + `"}`, `{"comment":"x","comment":"y"}`} {
		if why, err := evaluation.DecodeCancellation([]byte(body), limits); err == nil {
			t.Errorf("%s: got %q", body, why)
		}
	}
}

// Whatever is sent, a ruling is one of three, with a reason; and a withdrawal is none.
func FuzzRuling(f *testing.F) {
	f.Add([]byte(`{"decision":"approve","reason":"fine","version":3,"valid_until":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"decision":"delegate","reason":"away","to":"User::\"mia\""}`))
	f.Add([]byte(`{"decision":"deny","reason":""}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := evaluation.DecodeRuling(body, evaluation.DefaultLimits())
		switch {
		case err != nil:
			if bad := (*evaluation.Error)(nil); !errors.As(err, &bad) {
				t.Error(err)
			}
		case r.Decision != "approve" && r.Decision != "deny" && r.Decision != "delegate", strings.TrimSpace(r.Reason) == "", r.Version < 0,
			r.To != "" && r.Decision != "delegate", !r.ValidUntil.IsZero() && r.Decision != "approve":
			t.Errorf("%s: got %+v", body, r)
		}
		if w, err := evaluation.DecodeWithdrawal(body, evaluation.DefaultLimits()); err == nil && (w.Decision != "" || w.To != "" || !w.ValidUntil.IsZero()) {
			t.Errorf("%s: got %+v", body, w)
		}
	})
}
