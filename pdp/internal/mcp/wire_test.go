package mcp_test

import "testing"

// TestWire holds what goes over the wire against the files in testdata/wire, byte for byte: what clients of each era hear over HTTP
// and over the standard streams, with the heads of answers, and all that reaches the server. They are stories; see there.
func TestWire(t *testing.T) {
	t.Parallel()
	tellAll(t, "testdata/wire", true)
}
