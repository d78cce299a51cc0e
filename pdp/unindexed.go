package pdp

// WithoutIndex is a bundle that decides the same without any of what finds policies and
// candidates faster: every policy is put to cedar-go, and a search examines every entity
// of its type. It is for tests that compare the two.
func (b *Bundle) WithoutIndex() *Bundle {
	plain := *b
	plain.views = map[string]*view{}
	for tenant, v := range b.views {
		v := *v
		v.index = nil
		plain.views[tenant] = &v
	}
	return &plain
}
