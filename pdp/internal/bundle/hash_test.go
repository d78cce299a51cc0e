package bundle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go/types"
)

// TestHashOf holds our copy of cedar-go's hash to the original, which shows in the order in which a set is written: an
// element stands between the two numbers whose hash, being the number itself, is one less and one more.
func TestHashOf(t *testing.T) {
	t.Parallel()
	must := func(v types.Value, err error) types.Value {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	decimal := func(s string) types.Value { d, err := types.ParseDecimal(s); return must(d, err) }
	ip := func(s string) types.Value { a, err := types.ParseIPAddr(s); return must(a, err) }
	for _, v := range []types.Value{
		types.String(""), types.String("a"), types.String("\x00"), types.String("日本"), types.String(strings.Repeat("long", 99)),
		types.NewEntityUID("User", "alice"), types.NewEntityUID("A::B", ""),
		ip("10.0.0.1"), ip("10.0.0.0/8"), ip("::1"), ip("fe80::/10"),
		types.NewDatetime(time.UnixMilli(1234567890123)), types.NewDuration(90 * time.Second), types.NewDuration(-time.Second),
		decimal("0.0"), decimal("1.5"), decimal("-0.0001"), decimal("-0.5"), decimal("922337203685477.5807"), decimal("-922337203685477.5808"),
		types.NewRecord(types.RecordMap{"a": types.Long(7)}),
		types.NewRecord(types.RecordMap{"b": types.String("x"), "a": types.Boolean(true), "c": types.NewRecord(nil)}),
	} {
		hash, ok := hashOf(v)
		if !ok {
			t.Errorf("%v has no hash", v)
			continue
		}
		if hash == 0 || hash+1 == 0 {
			continue // its neighbours are at the other end
		}
		before, after := types.Long(hash-1), types.Long(hash+1)
		want := fmt.Sprintf("[%s, %s, %s]", before.MarshalCedar(), v.MarshalCedar(), after.MarshalCedar())
		if got := types.NewSet(after, v, before).String(); got != want {
			t.Errorf("a set is written %s; with the hash that we think it should be %s", got, want)
		}
	}
	for _, v := range []types.Value{types.NewRecord(nil), types.Boolean(false), types.Long(0)} {
		if hash, ok := hashOf(v); hash != 0 || !ok {
			t.Errorf("the hash of %v is %d, %v", v, hash, ok)
		}
	}
	if _, ok := hashOf(types.NewSet(types.Long(1))); ok {
		t.Error("the hash of a set is known, and honest sets of sets would be refused")
	}
}
