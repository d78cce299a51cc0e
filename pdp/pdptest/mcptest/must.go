package mcptest

import "testing"

// Must fails a test at once by an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
