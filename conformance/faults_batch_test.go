package conformance

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
)

func batchFaults() []fault {
	items := func(change func(all []any) []any) faulty {
		return answering(func(o object) {
			if all, ok := o["evaluations"].([]any); ok {
				o["evaluations"] = change(all)
			}
		})
	}
	isBatch := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/evaluations") }
	semantic := func(name string) faulty {
		return asking(func(r *http.Request, o object) {
			if isBatch(r) && o["options"] != nil {
				o["options"] = object{"evaluations_semantic": name}
			}
		})
	}
	// inheriting changes each part of an item that has a default.
	inheriting := func(change func(from, own object)) faulty {
		return asking(func(_ *http.Request, o object) {
			all, _ := o["evaluations"].([]any)
			for _, one := range all {
				item, _ := one.(object)
				for _, part := range []string{"subject", "action", "resource"} {
					from, _ := o[part].(object)
					if own, ok := item[part].(object); ok && from != nil {
						change(from, own)
					}
				}
			}
		})
	}
	return []fault{
		{"answers in another order", "c-3-2-2", items(func(all []any) []any { slices.Reverse(all); return all })},
		{"answers allows first", "c-3-3-2", items(func(all []any) []any {
			slices.SortStableFunc(all, func(a, b any) int {
				return strings.Compare(show(b), show(a)) // "true" after "false"
			})
			return all
		})},
		{"loses an item", "c-3-3-1", items(func(all []any) []any { return all[1:] })},
		{"items are bare booleans", "c-3-3-3", items(func(all []any) []any {
			for n := range all {
				all[n] = all[n].(object)["decision"]
			}
			return all
		})},
		{"leaves out an item that failed", "c-3-4-1", items(func(all []any) []any {
			return slices.DeleteFunc(all, func(a any) bool { return a.(object)["context"] != nil })
		})},
		{"one wrong item fails the batch", "batch-items-independent", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(a.Body.String(), `"error":`) {
				refuse(a, 400)
			}
		})},
		{"needs evaluations", "c-3-4-2", refusing(func(r *http.Request, o object) bool { return isBatch(r) && o["evaluations"] == nil })},
		{"needs evaluations to hold some", "c-3-4-3", answering(func(o object) {
			if _, ok := o["decision"]; ok {
				delete(o, "decision")
				o["evaluations"] = []any{}
			}
		})},
		{"a decision for the whole batch", "c-3-3-4", answering(func(o object) {
			if o["evaluations"] != nil {
				o["decision"] = true
			}
		})},
		{"merges properties", "batch-properties-not-merged", inheriting(func(from, own object) {
			theirs, _ := from["properties"].(object)
			ours, _ := own["properties"].(object)
			both := maps.Clone(theirs)
			maps.Copy(both, ours)
			own["properties"] = both
		})},
		{"ignores defaults", "c-3-2-2", asking(func(r *http.Request, o object) {
			if isBatch(r) {
				delete(o, "subject")
			}
		})},
		{"items take nothing from a default entity", "c-3-2-7", inheriting(func(from, own object) {
			for _, name := range []string{"type", "id", "name"} {
				if from[name] != nil && own[name] == nil {
					own[name] = 7
				}
			}
		})},
		{"never stops", "batch-deny-on-first-deny", semantic("execute_all")},
		{"leaves out the item that decided", "batch-permit-on-first-permit", items(func(all []any) []any { return all[:len(all)-1] })},
		{"stops though nobody asked", "batch-execute-all-is-default", semantic("deny_on_first_deny")},
		{"stops though all were asked for", "batch-execute-all", semantic("permit_on_first_permit")},
		{"takes one semantic for the other", "batch-permit-on-first-permit-none", semantic("deny_on_first_deny")},
		{"fills up after the item that decided", "batch-deny-on-first-deny-error", items(func(all []any) []any {
			for len(all) < 3 {
				all = append(all, object{"decision": false})
			}
			return all
		})},
		{"takes any semantic", "semantic-unknown", asking(func(r *http.Request, o object) {
			if isBatch(r) {
				delete(o, "options")
			}
		})},
		{"errors of items say nothing", "item-string", items(func(all []any) []any {
			for _, a := range all {
				delete(a.(object), "context")
			}
			return all
		})},
	}
}
