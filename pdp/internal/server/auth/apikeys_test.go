package auth

import (
	"log/slog"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/clock"
)

// Package keys imports this one, so the tests in this package cannot import it. What they use of it is set by
// apikeys_open_test.go, from outside.
var (
	OpenKeys func(dir string, now func() time.Time) (APIKeys, error)
	KeyFile  string // its name in the data directory
)

// APIKeys are the keys of a data directory.
type APIKeys interface {
	KeyHolders
	Add(spec KeySpec) (secret string, err error)
	Revoke(name string) error
	List() any
	LogTo(log *slog.Logger)
}

// KeySpec is a key to add.
type KeySpec struct {
	Name      string
	Principal Principal
	Via       evaluation.Via
	Grant
}

// checkAtMost is how long after a change each process goes by it.
const checkAtMost = 750 * time.Millisecond

func open(t testing.TB, dir string, c *clock.Clock) APIKeys {
	t.Helper()
	k, err := OpenKeys(dir, c.Now)
	must(t, err)
	return k
}

func add(t testing.TB, k APIKeys, name string) string {
	t.Helper()
	secret, err := k.Add(KeySpec{Name: name})
	must(t, err)
	return secret
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
