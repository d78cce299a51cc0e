package evaluation

// Limits bound the cost of a request, all in this one place. A body over
// Body is refused with 413, every other excess with 400, each with the bound
// and the JSON Pointer of the part that exceeded it.
type Limits struct {
	// Body is the greatest size of a body in bytes.
	Body int
	// Depth is how deep containers may nest; the body itself is the first.
	Depth int
	// Values is the greatest number of values in a body, containers included.
	Values int
	// Batch is the greatest number of items in one batch.
	Batch int
	// Detail is the greatest size of the detail of a receipt in bytes.
	Detail int
	// RequestID is the greatest size of the X-Request-ID header in bytes.
	RequestID int
}

// DefaultLimits are the limits of a server that sets none.
func DefaultLimits() Limits {
	return Limits{
		Body:      1 << 20,
		Depth:     16,
		Values:    20_000,
		Batch:     1000,
		Detail:    1024,
		RequestID: 256,
	}
}
