package toolschema

// shape is a Cedar type.
type shape struct {
	name    string // of a type without parts
	element *shape // of a set
	record  bool
	members []member
}

// member is a member of a record.
type member struct {
	name     string
	optional bool
	of       *shape
}

// required reports if a record cannot be empty.
func (s *shape) required() bool {
	for _, m := range s.members {
		if !m.optional {
			return true
		}
	}
	return false
}
