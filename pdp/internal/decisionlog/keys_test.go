package decisionlog

import (
	"os"
	"path/filepath"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"strings"
	"testing"
)

// TestCheckKey asks before the log is opened, and then opens it: both say the same.
func TestCheckKey(t *testing.T) {
	t.Parallel()
	other := memory(t)
	must(t, mustOpen(t, other, Options{}).Close())
	read := func(name string) string {
		content, err := os.ReadFile(name)
		must(t, err)
		return string(content)
	}
	for _, c := range []struct {
		name  string
		spoil func(data, key string) error
		want  string // "" is nothing
	}{
		{"as it was made", func(string, string) error { return nil }, ""},
		{"absent", func(_, key string) error { return os.Remove(key) }, "restore it from a backup"},
		{"garbage", func(_, key string) error { return os.WriteFile(key, []byte("PRIVATE+KEY+x\n"), 0o600) }, "is no private key of a log"},
		{"of another log", func(_, key string) error {
			return os.WriteFile(key, []byte(read(filepath.Join(other, format.KeyFile))), 0o600)
		}, "another key than the log was signed with"},
		{"open to all", func(_, key string) error { return os.Chmod(key, 0o604) }, "open to every user"},
		{"half rotated", func(data, key string) error {
			return os.Rename(key, filepath.Join(data, format.NextKeyFile))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := memory(t)
			if err := segment.CheckKey(data); err != nil {
				t.Errorf("before there is a log: %v", err)
			}
			must(t, mustOpen(t, data, Options{}).Close())
			must(t, c.spoil(data, filepath.Join(data, format.KeyFile)))
			checked := segment.CheckKey(data)
			l, opened := Open(data, Options{})
			if opened == nil {
				if err := segment.CheckKey(data); err != nil {
					t.Errorf("while it is open: %v", err)
				}
				must(t, l.Close())
			}
			for _, err := range []error{checked, opened} {
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
}
