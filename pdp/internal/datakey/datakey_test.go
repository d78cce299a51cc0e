package datakey_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/datakey"
)

var key = datakey.Key{File: "things.key", Of: "things", Moved: "and every thing is forgotten"}

func TestAKeyIsMadeOnce(t *testing.T) {
	data := t.TempDir()
	if got, err := key.Read(data); got != nil || err != nil || key.There(data) {
		t.Errorf("before it is made: got %x, %v", got, err)
	}
	made, err := key.Open(data)
	if err != nil || len(made) != 32 || !key.There(data) {
		t.Fatalf("got %x, %v", made, err)
	}
	for what, read := range map[string]func(string) ([]byte, error){"opened": key.Open, "read": key.Read} {
		if again, err := read(data); err != nil || !bytes.Equal(again, made) {
			t.Errorf("%s again: got %x, %v; want %x", what, again, err, made)
		}
	}
	if other, err := key.Open(t.TempDir()); err != nil || bytes.Equal(other, made) {
		t.Errorf("another directory: got %x, %v", other, err)
	}
	if info, err := os.Stat(filepath.Join(data, key.File)); err != nil || info.Mode() != 0o600 {
		t.Errorf("its file: got %v, %v", info, err)
	}
}

func TestAFileWithoutAKeyIsKept(t *testing.T) {
	for what, content := range map[string][]byte{
		"too short":  bytes.Repeat([]byte{1}, 31),
		"too long":   bytes.Repeat([]byte{1}, 33),
		"zeros only": make([]byte, 32),
	} {
		data := t.TempDir()
		name := filepath.Join(data, key.File)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, read := range []func(string) ([]byte, error){key.Open, key.Read} {
			if _, err := read(data); err == nil || !strings.Contains(err.Error(), key.Moved) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, content) || !key.There(data) {
			t.Errorf("%s: it is now %x, %v", what, got, err)
		}
	}
	if _, err := key.Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("there is a key without a directory")
	}
}
