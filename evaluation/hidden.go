package evaluation

// Hidden is a place in a request where the value that was sent is not known any more, because the
// request was masked before it went on record.
type Hidden struct {
	// At is the place, a JSON Pointer into the request in the AuthZEN shape. Everything
	// below it is hidden, too.
	At string `json:"at"`
	// Type is the type of the value that was sent: string, number, bool, object or array.
	Type string `json:"type"`
	// Part is set if only a part of a string is hidden, or the name of a member of an object.
	Part bool `json:"part,omitzero"`
	// Removed is set if the request has no value at this place any more.
	Removed bool `json:"removed,omitzero"`
	// Fit says whether the policies could be asked with the value. It is no part of the record's
	// member masked: other members of the record say it.
	Fit Fit `json:"-"`
}

// Fit says whether a value that is hidden could be put to the policies. A value cannot be put
// to them if the schema declares another type for it, or if no schema types it and Cedar has no
// such value.
type Fit uint8

// What can be known of a hidden value.
const (
	FitUnknown Fit = iota
	Fits
	Misfits
)
