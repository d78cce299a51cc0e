package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"policy-service/pdp/plainfile"
)

// keyFile is a secret in a file, read again now and then: a change needs no signal.
type keyFile struct {
	path   string
	now    func() time.Time
	logger *slog.Logger // gets the reason why the file is of no use: callers do not log it

	mu    sync.Mutex
	value string
	until time.Time
	wrong string // why the file was of no use when it was last read
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
	value, err := f.read()
	f.tell(err)
	if err != nil {
		return "", err
	}
	f.value, f.until = value, f.now().Add(fresh)
	return value, nil
}

// read reads the file. Its errors have nothing of the secret.
func (f *keyFile) read() (string, error) {
	text, err := plainfile.ReadPrivate(f.path, 4096)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return "", fmt.Errorf("%s holds no key: write the key, and nothing else, on one line", f.path)
	}
	return value, nil
}

// tell logs a mistake once, and not with each request, until it is mended or there is another.
func (f *keyFile) tell(err error) {
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	switch {
	case wrong == f.wrong:
	case wrong != "":
		f.logger.Error("every request is refused: pdp.key_file cannot be used: " + wrong)
	default:
		f.logger.Info("pdp.key_file can be used again")
	}
	f.wrong = wrong
}
