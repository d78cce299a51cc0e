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

// keyFile is a secret in a file, read again now and then: whoever changes it need not tell anybody.
type keyFile struct {
	path   string
	now    func() time.Time
	logger *slog.Logger // told why the file is of no use: who asks with the secret does not repeat it

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

// read reads the file. What it says of a file never has anything of the secret.
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

// tell logs what is wrong once, and not with each request, until it is mended or something else is wrong.
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
