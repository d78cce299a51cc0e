package evaluation_test

import (
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
)

// Of what a server says only whole seconds and text count.
func TestHeardHintOf(t *testing.T) {
	t.Parallel()
	for properties, want := range map[string]evaluation.Hint{
		`{"approval_hint":{"required":true,"mode":"user_approval","timeout":300,"message":"take care"}}`: {Timeout: 5 * time.Minute, Message: "take care"},
		`{"approval_hint":{"timeout":1}}`:              {Timeout: time.Second},
		`{"approval_hint":{"timeout":3e2}}`:            {Timeout: 5 * time.Minute},
		`{"approval_hint":{"timeout":9223372036}}`:     {Timeout: 9223372036 * time.Second},
		`{"approval_hint":{"timeout":9223372037}}`:     {},
		`{"approval_hint":{"timeout":1e999999999}}`:    {},
		`{"approval_hint":{"timeout":0}}`:              {},
		`{"approval_hint":{"timeout":-1}}`:             {},
		`{"approval_hint":{"timeout":0.5}}`:            {},
		`{"approval_hint":{"timeout":1.5}}`:            {},
		`{"approval_hint":{"timeout":"300"}}`:          {},
		`{"approval_hint":{"timeout":true}}`:           {},
		`{"approval_hint":{"timeout":[300]}}`:          {},
		`{"approval_hint":{"timeout":null}}`:           {},
		`{"approval_hint":{"message":7}}`:              {},
		`{"approval_hint":{"message":{"a":"b"}}}`:      {},
		`{"approval_hint":{"message":true}}`:           {},
		`{"approval_hint":{"message":" a\n\u0000b "}}`: {Message: " a\n\x00b "},
		`{"approval_hint":true}`:                       {},
		`{"approval_hint":"take care"}`:                {},
		`{"approval_hint":[{"timeout":1}]}`:            {},
		`{"Approval_hint":{"timeout":1}}`:              {},
		`{"timeout":1,"message":"take care"}`:          {},
		`{}`:                                           {},
	} {
		o, err := evaluation.ParseWithNulls([]byte(properties), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got := evaluation.HintOf(o); got != want {
			t.Errorf("%s: got %+v, want %+v", properties, got, want)
		}
	}
	o, err := evaluation.NewObject(map[string]any{"approval_hint": map[string]any{"message": strings.Repeat("x", 100<<10)}})
	if got := evaluation.HintOf(o); err != nil || len(got.Message) != 100<<10 {
		t.Errorf("%d bytes, %v", len(got.Message), err)
	}
}
