package mcp_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
)

// The log names a key file that is of no use, and what to do, once for all requests that it has refused.
func TestKeyFileOfNoUse(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v, file := w.plain("modern"), w.config.PDP.KeyFile
	call := func(works bool) {
		t.Helper()
		w.advance(2 * time.Second)
		if got := v.call("free", `{}`); strings.Contains(got.String(), "service unavailable") == works {
			t.Errorf("works: %v: %s", works, got)
		}
	}
	said := func(text string, times int) {
		t.Helper()
		if logs := w.logs.String(); strings.Count(logs, text) != times || strings.Contains(logs, w.keys["gateway"]) {
			t.Errorf("%q not %d times in\n%s", text, times, logs)
		}
	}
	call(true)
	orFail(t, os.Chmod(file, 0o644))
	call(false)
	call(false)
	said("pdp.key_file cannot be used: "+file+" is open to every user of this machine: chmod 600 it", 1)
	orFail(t, os.Rename(file, file+".old"))
	call(false)
	said("pdp.key_file cannot be used: open "+file+": no such file or directory", 1)
	orFail(t, os.Rename(file+".old", file))
	orFail(t, os.Chmod(file, 0o600))
	call(true)
	said("pdp.key_file can be used again", 1)
}

// TestNoStartWithAKeyFileThatOthersMayRead: it would refuse every request, or have had its key read.
func TestNoStartWithAKeyFileThatOthersMayRead(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	c := w.config
	orFail(t, os.Chmod(c.PDP.KeyFile, 0o604))
	if _, err := mcp.New(t.Context(), c, mcp.Deps{}); err == nil || !strings.Contains(err.Error(), "pdp.key_file: "+c.PDP.KeyFile+" is open to every user of this machine: chmod 600 it") {
		t.Error(err)
	}
}
