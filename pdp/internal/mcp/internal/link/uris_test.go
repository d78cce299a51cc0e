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
		// As programs read it that know fewer characters, and as Windows does.
		"file:///docs/\uff0e\uff0e/etc": false, "file:///docs/%EF%BC%8E%EF%BC%8E/etc": false, "file:///docs/..\uff0fetc": false, "file:///docs/a\uff3cb": false, "file:///docs/\uff052e\uff052e/etc": false,
		"file:///docs/\u2025/etc": false, "file:///docs/\ufe52./etc": false, "file:///docs/\uff61\u3002/etc": false, "file:///docs/..\u2215etc": false, "file:///docs/..\u2216etc": false, "file:///docs/..\u00a5etc": false,
		"file:///docs/.\u200b./etc": false, "file:///docs/.%c0./etc": false, "file:///docs/..%ef%b8%8f/etc": false, "file:///docs/caf%E9": true, "file:///docs/%u002e%U002E/etc": false, "file:///docs/%uff0e%uff0e/etc": false,
		"file:///docs/%c0%ae%c0%ae/etc": false, "file:///docs/..%c0%afetc": false, "file:///docs/%25c0%25ae": false, "file:///docs/%e0%80%ae": false, "file:///docs/%f0%80%80%ae": false,
		"file:///docs/.. /etc": false, "file:///docs/..%20/etc": false, "file:///docs/.../etc": false, "file:///docs/.. ./etc": false, "file:///docs/..::$INDEX_ALLOCATION/etc": false, `file:///docs/..%5c..%5cetc`: false,
		"file:///docs/caf%c3%a9/\u043f\u0440\u0438.md": true, "file:///docs/caf%e9": true, "file:///docs/\uff21.md": true, "file:///docs/a\u2026": true, "file:///docs/%u00": true,
	} {
		if got := fenced.Owns(uri); got != want {
			t.Errorf("%q: %t", uri, got)
		}
		if !open.Owns(uri) {
			t.Errorf("%q is behind no fence, and is nobody's", uri)
		}
	}
}

// TestURIsNameAHost: a prefix that ends with a host is no beginning of other hosts' names, and of no other port or user's name.
func TestURIsNameAHost(t *testing.T) {
	for begin, uris := range map[string]map[string]bool{
		"https://example.com": {
			"https://example.com": true, "https://example.com/": true, "https://example.com/a": true, "https://example.com?a": true, "https://example.com#a": true,
			"https://example.com.evil.org": false, "https://example.com.evil.org/a": false, "https://example.com@evil": false, "https://example.com:@evil/": false, "https://example.com-evil/": false,
			"https://example.com:8443/": false, "https://example.com:443/": false, "https://example.com./": false, "https://me@example.com/": false, "https://example.com%2eevil.org/": false,
			"https://example.com{/path}": false, "https://example.com;a": false, `https://example.com\@evil`: false, "https://example.com\uff0f@evil": false, "https://example.com\u200b/": false,
			"HTTPS://example.com/": false, "https://EXAMPLE.com/": false, "http://example.com/": false, "https:/example.com/": false,
		},
		"https://example.com:8": {"https://example.com:8/": true, "https://example.com:8443/": false},
		"https://me@":           {"https://me@/": true, "https://me@evil/": false},
		"https://example.com/":  {"https://example.com/a": true, "https://example.com": false, "https://example.com.evil.org/": false},
		"https://example.com/a": {"https://example.com/ab": true},
		"https://example.com?q": {"https://example.com?query": true},
		"mem://":                {"mem://a/b": true},
		"mem:":                  {"mem://a": true, "mem:a": true},
	} {
		for uri, want := range uris {
			if got := (&Server{URIs: []string{begin}}).Owns(uri); got != want {
				t.Errorf("%q begins with %q: %t", uri, begin, got)
			}
		}
	}
}
