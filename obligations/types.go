package obligations

import (
	"slices"

	"policy-service/evaluation"
)

// Combine says whether two different obligations of one type go together.
type Combine uint8

const (
	// Each obligation stands by itself, and all of them are owed.
	Each Combine = iota
	// One obligation of the type can be met; two different ones deny.
	One
)

// On says with which answers an obligation can come.
type On uint8

// The answers an obligation can come with.
const (
	OnAllow On = 1 << iota
	OnDeny
	OnBoth = OnAllow | OnDeny
)

// With reports whether an obligation can come with an answer.
func (o On) With(allow bool) bool {
	if allow {
		return o&OnAllow != 0
	}
	return o&OnDeny != 0
}

// Type is a kind of obligation. The form of its properties stands in
// schemas/obligations.
type Type struct {
	Name    string
	Combine Combine
	// On is with which answers obligations of the type come, unless their
	// definition says otherwise.
	On On
	// Needs is a property that a template must not fill with nothing; the schema
	// of the type says so of what is written out.
	Needs string
}

// The types that the service itself acts on.
const (
	// ApprovalRequired is the type that the native answer is about.
	ApprovalRequired = "approval_required"
	// CapabilityTerms bounds a capability that is granted.
	CapabilityTerms = "capability_terms"
)

// types is the registry of all types, in order of names.
var types = [...]Type{
	{Name: ApprovalRequired, Combine: One, On: OnAllow},
	{Name: CapabilityTerms, Combine: One, On: OnAllow},
	{Name: "custom", On: OnBoth},
	{Name: "log", On: OnBoth},
	{Name: "notification", On: OnBoth, Needs: "to"},
	{Name: "redact", On: OnBoth},
	{Name: "session_termination", On: OnBoth, Needs: "subject"},
	{Name: "step-up", Combine: One, On: OnBoth, Needs: "acr_value"},
}

// Types are the names of all types, in order, which the PDP advertises.
func Types() []string {
	names := make([]string, len(types))
	for n, t := range types {
		names[n] = t.Name
	}
	return names
}

// Lookup returns the type of a name.
func Lookup(name string) (Type, bool) {
	n := slices.IndexFunc(types[:], func(t Type) bool { return t.Name == name })
	if n < 0 {
		return Type{}, false
	}
	return types[n], true
}

// Definition is an obligation that policies can name.
type Definition struct {
	Name       string
	Type       Type
	On         On
	Properties evaluation.Object
}

// Builtin are the definitions that every bundle has: without properties, and
// open to be defined anew.
func Builtin() []*Definition {
	var all []*Definition
	for _, name := range []string{ApprovalRequired, "log"} {
		t, _ := Lookup(name)
		all = append(all, &Definition{Name: name, Type: t, On: t.On})
	}
	return all
}
