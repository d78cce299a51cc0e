// Package written makes no promise: it is for the tests of this module alone. It keeps the text of writers in other
// goroutines, for tests to read meanwhile.
package written

import (
	"bytes"
	"sync"
)

// Text is all that was written since the last [Text.Take].
type Text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (t *Text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(b)
}

func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// Take returns the text, and begins with none.
func (t *Text) Take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.all.Reset()
	return t.all.String()
}
