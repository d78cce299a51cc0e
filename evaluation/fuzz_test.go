package evaluation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"policy-service/evaluation"
)

// bodies are what the fuzzer begins with: every form of value, and the ways to be refused.
var bodies = []string{
	"", "null", "{}", "[]", "{", `{"subject"`, "\xEF\xBB\xBF{}", "{}{}",
	in(`{"a":[1,-0,1.50,1e400,true,false,null,"\u0000é😀\ud83d\ude00",{"b":[]}],"":{},"n":null}`),
	in(`{"a":1,"\u0061":2}`), in(`{"a":"\ud83d"}`), in("{\"a\":\"\xff\"}"), in(`{"__entity":1}`), in(`{"a":[{"\u005f_extn":1}]}`),
	in(`{"action":1}`), in(`{"pdp":{}}`), in(`{"a":[[[1]]]}`), in(`{"` + strings.Repeat("~", 600) + `":{"__extn":1}}`),
	`{"tenant_id":"t1","actor":{"actor_type":"u","actor_id":"1","properties":{"x":1},"type":"y"},"action":"a","resource":{"type":"r","id":"2","labels":{}},"purpose":"p","context":{"x":[{}]}}`,
	`{"tenant_id":"t1","actor":{"actor_type":"u","actor_id":"1"},"action":"a","resource":{"type":"r","id":"2"},"purpose":"p","context":{"purpose":"q"}}`,
}

func FuzzDecodeAuthZEN(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Add([]byte(shapes["AuthZEN"].body))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := evaluation.DecodeAuthZEN(body, "t1", evaluation.DefaultLimits())
		holds(t, r, err)
	})
}

func FuzzDecodeNative(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Add([]byte(shapes["native"].body))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := evaluation.DecodeNative(body, evaluation.DefaultLimits())
		holds(t, r, err)
	})
}

// holds says what must be true of every body, accepted or refused.
func holds(t *testing.T, r evaluation.Request, err error) {
	t.Helper()
	if err != nil {
		var e *evaluation.Error
		if !errors.As(err, &e) || !validPointer(e.Pointer) || e.Detail == "" || len(e.Error()) > 2000 {
			t.Errorf("it is refused by %T with %.2000q", err, err)
		}
		if !equal(r, evaluation.Request{}) {
			t.Errorf("it is refused, and yet a request: %+v", r)
		}
		return
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := evaluation.DecodeAuthZEN(text, r.Tenant, wider())
	again.Tenant = r.Tenant // an empty tenant_id names no tenant, an AuthZEN request has always one
	if err != nil || !equal(r, again) {
		t.Errorf("%s\nis decoded again to %+v, %v", text, again, err)
	}
	for where, o := range map[string]evaluation.Object{
		"subject": r.Subject.Properties, "action": r.Action.Properties, "resource": r.Resource.Properties, "context": r.Context,
	} {
		clean(t, where, o.Value())
	}
	for _, name := range []string{"action", "pdp"} {
		if _, ok := r.Context.Get(name); ok {
			t.Errorf("the context holds %s", name)
		}
	}
}

// wider are limits with room for what the AuthZEN shape adds to a native request, properties, and for text that grows
// when it is written again.
func wider() evaluation.Limits {
	l := evaluation.DefaultLimits()
	l.Body, l.Depth, l.Values = 8*l.Body, l.Depth+1, l.Values+10
	return l
}

// clean holds that nothing in a value could be read as a reference or as two things.
func clean(t *testing.T, where string, v evaluation.Value) {
	t.Helper()
	if !utf8.ValidString(v.Text()) {
		t.Errorf("%s holds invalid UTF-8", where)
	}
	last := ""
	for name, member := range v.Object().Members {
		if name == "__entity" || name == "__extn" || !utf8.ValidString(name) || name <= last && last != "" || member.Kind() == evaluation.Null {
			t.Errorf("%s holds %q, after %q", where, name, last)
		}
		last = name
		clean(t, where, member)
	}
	for _, element := range v.Elements {
		clean(t, where, element)
	}
}
