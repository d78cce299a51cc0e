package evaluation_test

import (
	"errors"
	"reflect"
	"testing"

	"policy-service/evaluation"
)

// A request that asks what is possible is written so that it is read as the same.
func TestUnknownIsWritten(t *testing.T) {
	t.Parallel()
	for _, body := range []string{in(`{}`), notKnowing(`[]`), notKnowing(`["/context/a~1b","/context/pdp/approved","/subject/properties/\"é"]`)} {
		r, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := evaluation.DecodeAuthZEN(text, "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, want := again.Unknown.Pointers(), r.Unknown.Pointers()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// The native shape decides. A question about what is possible would be decided as if all of it were known.
func TestNativeHasNoUnknown(t *testing.T) {
	t.Parallel()
	_, err := evaluation.DecodeNative([]byte(`{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"u"},"action":"r","resource":{"type":"d","id":"1"},"options":{"unknown":["/context/a"]}}`), evaluation.DefaultLimits())
	if e := (*evaluation.Error)(nil); !errors.As(err, &e) || e.Pointer != "/options/unknown" {
		t.Errorf("got %v", err)
	}
}

func TestUnknownAt(t *testing.T) {
	t.Parallel()
	if _, err := evaluation.UnknownAt("/context/a", "/subject"); err == nil || err.Error() != "/options/unknown/1: types, ids and names must be known, and are all that this is; name its properties, or one of them: /subject/properties/NAME" {
		t.Errorf("got %v", err)
	}
	some := []string{"/context/a"}
	u, err := evaluation.UnknownAt(some...)
	if some[0] = "/subject"; err != nil || u.Pointers()[0] != "/context/a" || u.Size() != len("/context/a") {
		t.Errorf("got %v, %v", u, err)
	}
}
