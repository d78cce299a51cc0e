package ledger

import (
	"crypto/rand"
	"slices"
)

// naming is the name of an opening. Last is the last revision under that name, once there is another one.
type naming struct {
	Name string `json:"name"`
	Last uint64 `json:"last,omitzero"`
}

// MostNames is how many names are kept. Revisions under the names before are known no more.
const MostNames = 100

// begin writes the format where nothing was written yet.
func (l *Ledger[I, S]) begin() error {
	number := 0
	err := l.View(func(tx *Tx) { number = tx.Format() })
	if err == nil && number == 0 {
		_, err = l.Update(func(c *Change[S]) {
			c.t.If[KeyFormat] = 0
			c.Put(KeyFormat, general{Format: l.options.Form.Version})
		})
	}
	return err
}

// name gives the values a name, if nobody else writes them: by it they differ from values that were begun anew, and from
// their own state before an older copy was put in their place.
func (l *Ledger[I, S]) name() error {
	var is general
	next := naming{Name: rand.Text()}
	_, err := l.Update(func(c *Change[S]) {
		c.Get(KeyFormat, &is)
		if n := len(is.Names); n == 0 || !l.engine.Shared() {
			if n > 0 {
				is.Names[n-1].Last = c.tx.Revision()
			}
			is.Names = append(is.Names, next)
			is.Names = is.Names[max(0, len(is.Names)-MostNames):]
			c.Put(KeyFormat, is)
		}
	})
	l.names = is.Names
	return err
}

// Name is the name of this opening.
func (l *Ledger[I, S]) Name() string { return l.names[len(l.names)-1].Name }

// Knows reports whether the values have had all changes up to a revision under a name. An older copy does not know the
// names that came since it was made, and says of the name that it has that no later change has come under that.
func (l *Ledger[I, S]) Knows(name string, revision uint64) bool {
	n := slices.IndexFunc(l.names, func(one naming) bool { return one.Name == name })
	return n >= 0 && (n == len(l.names)-1 || revision <= l.names[n].Last)
}
