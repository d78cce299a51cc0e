package mcptest

import "io"

// Body is the body of an answer. Closed is called once it was closed.
type Body struct {
	io.ReadCloser
	Closed func()
}

// Close implements [io.Closer].
func (b Body) Close() error {
	defer b.Closed()
	return b.ReadCloser.Close()
}
