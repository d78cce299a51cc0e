package verify

import "bytes"

// batches says of each item of a batch whether the record that it inherits from stands
// before it, as it must: between the two there are only items of the same batch.
type batches struct {
	id   []byte // of the batch that the record before belongs to, empty for none
	gone bool   // a record without content followed that may have been one of a batch
}

// lacks takes a record, and reports whether that of its batch is missing.
func (b *batches) lacks(r *record) bool {
	of := r.of()
	switch {
	case r.batch:
		of = r.id
	case of != nil && (bytes.Equal(of, b.id) || b.gone):
	default:
		*b = batches{id: b.id[:0]}
		return r.inherits
	}
	*b = batches{id: append(b.id[:0], of...)}
	return false
}
