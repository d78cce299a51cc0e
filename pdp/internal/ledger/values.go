package ledger

import "context"

// Values are values without items, steps and a log. What counts at once, or is put on record by its owner, is kept so.
type Values struct {
	ledger *Ledger[plain, plain]
}

// plain stands for items and steps, of which there are none.
type plain struct{}

// Standing implements [Item].
func (plain) Standing() Standing { return Standing{} }

// Settled implements [Item].
func (plain) Settled(string) bool { return false }

// Entry implements [Step].
func (plain) Entry() Entry { return Entry{} }

// ValuesChange is a change of values.
type ValuesChange = Change[plain]

// NewValues makes values, which are to be opened.
func NewValues(engine Engine, form Form) *Values {
	l := New(Options[plain, plain]{Engine: engine, Form: form, Log: Log[plain]{Size: func() uint64 { return 0 }}})
	return &Values{l}
}

// Open opens the engine, and begins the values if there are none.
func (v *Values) Open(ctx context.Context) error {
	if err := v.ledger.engine.Open(); err != nil {
		return err
	}
	return v.ledger.Again(ctx, v.ledger.begin)
}

// Close closes the engine.
func (v *Values) Close() error { return v.ledger.engine.Close() }

// View runs a function on one state of the values.
func (v *Values) View(read func(*Tx)) error { return v.ledger.View(read) }

// Update runs a function that reads and writes, and returns when what it wrote is durable. It runs the function again whenever
// another process changed meanwhile what it had read. After an error that is not the function's it may have happened or not.
func (v *Values) Update(ctx context.Context, change func(*ValuesChange)) error {
	return v.ledger.Change(ctx, change)
}

// Watch calls a function after changes that another process made, until stop.
func (v *Values) Watch(changed func(keys []string)) (stop func()) {
	return v.ledger.engine.Watch(changed)
}
