package clients_test

import (
	"fmt"
	"os"
	"testing"
)

// shared is a directory for the things that several tests need, made once. It is removed when they have ended.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "clients-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(shared)
	os.Exit(code)
}
