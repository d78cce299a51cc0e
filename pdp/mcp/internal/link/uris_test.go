package link

import (
	"testing"
)

// TestURIsAreAFence: no URI that begins as the operator says leads to another place, as anybody reads it.
func TestURIsAreAFence(t *testing.T) {
	fenced, open := &Server{URIs: []string{"file:///docs/"}}, &Server{URIs: []string{""}}
	for uri, want := range map[string]bool{
		"file:///docs/a": true, "file:///docs/a%20b/ü.md": true, "file:///docs/{path}": true, "file:///docs/..a/.b/c..": true, "file:///docs/100%": true, "file:///docs/%zz": true,
		"file:///docs": false, "mem://docs/": false,
		"file:///docs/../etc/passwd": false, "file:///docs/./a": false, "file:///docs/..": false, "file:///docs/..?x": false, "file:///docs/..;x/etc": false,
		"file:///docs/%2e%2e/etc": false, "file:///docs/.%2E/etc": false, "file:///docs/%2e%2e%2fetc": false, "file:///docs/%252e%252e/etc": false,
		`file:///docs/..\etc`: false, `file:///docs/a\b`: false, "file:///docs/..%5cetc": false, "file:///docs/.\t./etc": false, "file:///docs/%0a": false,
		"file:///docs/%2525252525252e": false,
	} {
		if got := fenced.Owns(uri); got != want {
			t.Errorf("%q: %t", uri, got)
		}
		if !open.Owns(uri) {
			t.Errorf("%q is behind no fence, and is nobody's", uri)
		}
	}
}
