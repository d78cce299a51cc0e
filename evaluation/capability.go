package evaluation

// Capability is what context.pdp.capability says of a request: whether it was shown to hold a capability for exactly this
// call, which one, and how often that was handed on. The zero value is none.
type Capability struct {
	Held  bool
	ID    string
	Depth int
}
