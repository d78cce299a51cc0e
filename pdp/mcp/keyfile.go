package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"policy-service/pdp/plainfile"
)

// keyFile is a secret in a file, read again now and then: whoever changes it need not tell anybody.
type keyFile struct {
	path string
	now  func() time.Time

	mu    sync.Mutex
	value string
	until time.Time
}

// fresh is for how long a file is believed to be as it was.
const fresh = time.Second

// token is the secret. A file that cannot be read is an error, and never no secret.
func (f *keyFile) token(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Before(f.until) {
		return f.value, nil
	}
	text, err := plainfile.ReadPrivate(f.path, 4096)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return "", fmt.Errorf("%s holds no key: write the key, and nothing else, on one line", f.path)
	}
	f.value, f.until = value, f.now().Add(fresh)
	return value, nil
}
