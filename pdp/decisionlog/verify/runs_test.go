package verify_test

import (
	"reflect"
	"strings"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
)

// TestDecisionsThatNoServiceMade: verify names decisions while no service ran, by the records, and by a bundle that none
// had loaded; and none of a log whose records are gone, or of a program that records no starts.
func TestDecisionsThatNoServiceMade(t *testing.T) {
	t.Parallel()
	loaded := map[string]any{"bundle": "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "files": 3}
	for name, c := range map[string]struct {
		do                func(*writer)
		outside, unloaded *verify.Unnamed
	}{
		"in order": {func(w *writer) {
			w.admin(format.EventStart, nil)
			w.admin(format.EventBundleLoaded, loaded)
			w.records(2)
			w.admin(format.EventCrash, nil)
			w.admin(format.EventStart, nil)
			w.records(2)
			w.admin(format.EventStop, nil)
		}, nil, nil},
		"before the first start": {func(w *writer) {
			w.records(2)
			w.admin(format.EventBundleLoaded, loaded)
			w.admin(format.EventStart, nil)
		}, &verify.Unnamed{2, 1}, &verify.Unnamed{2, 1}},
		"after a stop": {func(w *writer) {
			w.admin(format.EventStart, nil)
			w.admin(format.EventBundleLoaded, loaded)
			w.admin(format.EventStop, nil)
			w.records(3)
		}, &verify.Unnamed{3, 4}, nil},
		"after a crash": {func(w *writer) {
			w.admin(format.EventStart, nil)
			w.admin(format.EventBundleLoaded, loaded)
			w.admin(format.EventCrash, nil)
			w.records(1)
			w.admin(format.EventStart, nil)
		}, &verify.Unnamed{1, 4}, nil},
		"by another bundle": {func(w *writer) {
			w.admin(format.EventStart, nil)
			w.admin(format.EventBundleLoaded, map[string]any{"bundle": "h1:other"})
			w.records(1)
		}, nil, &verify.Unnamed{1, 3}},
		"without starts": {func(w *writer) { w.records(3) }, nil, nil},
		"the start is gone": {func(w *writer) {
			w.admin(format.EventStart, nil)
			w.admin(format.EventBundleLoaded, loaded)
			w.checkpoint()
			w.seal()
			w.remove(1, 0, 3, []int{0, 1, 2}, format.WhyRetired)
			w.admin(format.EventBundleLoaded, map[string]any{"bundle": "h1:other"})
			w.records(1)
			w.admin(format.EventStop, nil)
			w.admin(format.EventStart, nil)
		}, nil, nil},
	} {
		data := t.TempDir()
		w := newWriter(t, data)
		c.do(w)
		w.checkpoint()
		w.must(w.db.Close())
		r := verify.Directory(data, verify.Options{})
		if !r.Verified() || !reflect.DeepEqual(r.OutsideStart, c.outside) || !reflect.DeepEqual(r.UnknownBundle, c.unloaded) {
			t.Errorf("%s: %v, %v, %v", name, r.Problem, r.OutsideStart, r.UnknownBundle)
		}
		named := strings.Contains(strings.Join(r.NotExcluded, "\n"), "somebody else's")
		if strict := verify.Directory(data, verify.Options{Strict: true}); named != (c.outside != nil || c.unloaded != nil) || named != (strict.Code == verify.Unsigned) || named == strict.Verified() {
			t.Errorf("%s: %q, strictly %v", name, r.NotExcluded, strict.Code)
		}
	}
}

// TestStrictOfTheEnd: strictly, records that no checkpoint covers are a finding.
func TestStrictOfTheEnd(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := newWriter(t, data)
	w.checkpoint()
	w.records(2)
	w.must(w.db.Close())
	if r := verify.Directory(data, verify.Options{Strict: true}); r.Code != verify.Unsigned || r.Exit != 10 || r.Problem.Try == "" || !strings.Contains(r.Problem.What, "the last 2 records") {
		t.Errorf("%+v", r)
	}
}
