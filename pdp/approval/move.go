package approval

// move is an approval on the way to what it will be, and the steps that it takes.
type move struct {
	store *Store
	from  *Approval // nil of a new one
	to    Approval
	steps []*Step
	// allowed is asked by the writer, where it is not nil.
	allowed func() error
}

func (s *Store) move(from Approval) *move {
	return &move{store: s, from: &from, to: from.next()}
}

// step adds a step, after which the approval is as it is now. Its record has the id.
func (m *move) step(s Step) (id string) {
	s.ID, s.Approval = m.store.options.NewID(), m.to
	s.Seal = m.store.seal(&s, m.to.Digest)
	m.steps = append(m.steps, &s)
	return s.ID
}

// write writes the change with its steps.
func (m *move) write(c *change) error {
	if m.allowed != nil {
		if err := m.allowed(); err != nil {
			return err
		}
	}
	if err := c.save(m.from, &m.to); err != nil {
		return err
	}
	for _, s := range m.steps {
		if err := c.step(s); err != nil {
			return err
		}
	}
	return nil
}
