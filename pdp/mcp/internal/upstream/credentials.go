package upstream

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"policy-service/pdp/mcp/internal/leak"
	"policy-service/pdp/plainfile"
)

// HeaderFile is a credential in a file: one line with the value of a header. The file is read for each request, so a change
// counts at once.
type HeaderFile struct {
	Path string
	// Header is the header's name; "" is Authorization.
	Header string
}

// NewHeaderFile makes credentials of a file. The header is one [ForCredentials].
func NewHeaderFile(f HeaderFile) Credentials {
	f.Header = cmp.Or(f.Header, "Authorization")
	return &f
}

// ForCredentials reports whether a header can hold a credential: it has no meaning of its own for HTTP, for MCP, or for
// proxies.
func ForCredentials(name string) bool {
	lower := strings.ToLower(name)
	for _, prefix := range []string{"mcp-", "content-", "accept", "sec-", "x-forwarded-", "proxy-", "transfer-", "if-"} {
		if strings.HasPrefix(lower, prefix) {
			return false
		}
	}
	switch lower {
	case "host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect", "forwarded", "via", "date", "range",
		"origin", "referer", "user-agent", "cookie", "last-event-id", "traceparent", "tracestate", "baggage":
		return false
	}
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
}

// mostHeader bounds the value of a header.
const mostHeader = 16 << 10

// Authorize sets the header to the line of the file.
func (f *HeaderFile) Authorize(_ context.Context, h http.Header, _, _ string, _ time.Time) error {
	line, err := readLine(f.Path)
	if err != nil {
		return fmt.Errorf("the credential for the upstream cannot be read: %w", err)
	}
	h.Set(f.Header, line)
	return nil
}

// learn masks the credential in h in all messages of the server: the part behind the scheme, or all of it.
func (u *httpUpstream) learn(h http.Header) {
	for _, values := range h {
		_, credential, _ := strings.Cut(values[0], " ")
		if len(credential) < leak.Least {
			credential = values[0]
		}
		u.masks.Learn(credential)
	}
	if _, password, ok := (&http.Request{Header: h}).BasicAuth(); ok {
		u.masks.Learn(password)
	}
}

// CheckSecret returns the error of a file that is to hold one secret and nothing else.
func CheckSecret(path string) error {
	_, err := readLine(path)
	return err
}

// readLine reads a file that holds one secret and nothing else.
func readLine(path string) (string, error) {
	content, err := plainfile.ReadPrivate(path, mostHeader)
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if strings.TrimSpace(line) != line || !isHeaderValue(line) {
		return "", fmt.Errorf("%s is not one line of plain characters; write the value, and nothing else", path)
	}
	return line, nil
}

// isHeaderValue reports whether a text is not empty and has only characters that every server reads alike.
func isHeaderValue(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
