// Package wire is how a suite speaks to the server under test, which may be anything: it goes nowhere else than it was sent, and
// reads no more than a bound.
package wire

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Most is how much of a body is read.
const Most = 8 << 20

// Client is a copy of a client, or of the default one, that follows no redirect: one would take a body and a credential
// to another host.
func Client(c *http.Client) *http.Client {
	same := *cmp.Or(c, http.DefaultClient)
	same.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &same
}

// SetHeaders sets headers; one with an empty value is not sent at all.
func SetHeaders(h http.Header, all map[string]string) {
	for name, value := range all {
		if h.Set(name, value); value == "" {
			h.Del(name)
		}
	}
}

// Read reads a body.
func Read(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, Most+1))
	if err == nil && len(text) > Most {
		err = errors.New("the answer is longer than anybody would read")
	}
	return text, err
}

// Excerpt is the beginning of a text.
func Excerpt(s string) string {
	const enough = 1000
	if len(s) <= enough {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:enough], "\uFFFD") + fmt.Sprintf("… (%d bytes)", len(s))
}
