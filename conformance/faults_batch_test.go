package conformance

import (
	"net/http"
	"slices"
	"strings"
)

func batchFaults() []fault {
	items := func(change func(all []any) []any) http.Handler {
		return answering(func(o object) {
			if all, ok := o["evaluations"].([]any); ok {
				o["evaluations"] = change(all)
			}
		})
	}
	isBatch := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/evaluations") }
	semantic := func(name string) http.Handler {
		return asking(func(r *http.Request, o object) {
			if isBatch(r) && o["options"] != nil {
				o["options"] = object{"evaluations_semantic": name}
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
		{"one wrong item fails the batch", "batch-items-independent", &stub{wholeBatchFails: true}},
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
		{"merges properties", "batch-properties-not-merged", &stub{mergesProperties: true}},
		{"ignores defaults", "c-3-2-2", &stub{ignoresDefaults: true}},
		{"items take nothing from a default entity", "c-3-2-7", &stub{keepsOnlyID: true}},
		{"never stops", "batch-deny-on-first-deny", &stub{startsOver: true}},
		{"leaves out the item that decided", "batch-permit-on-first-permit", &stub{dropsShortCircuit: true}},
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
