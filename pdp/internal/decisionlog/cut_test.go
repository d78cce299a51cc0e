package decisionlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// TestNoLogBeginsInThePlaceOfAnother: where anything of a log is left and its segments do not reach as far as it says, no
// log is opened, and none begins; and [segment.CheckKey] says so before.
func TestNoLogBeginsInThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	remove := func(names ...string) func(t *testing.T, data, older string) {
		return func(t *testing.T, data, _ string) {
			for _, name := range names {
				must(t, os.RemoveAll(filepath.Join(data, name)))
			}
		}
	}
	back := func(names ...string) func(t *testing.T, data, older string) {
		return func(t *testing.T, data, older string) {
			for _, name := range names {
				content, err := os.ReadFile(filepath.Join(older, name))
				must(t, errors.Join(err, os.WriteFile(filepath.Join(data, name), content, 0o600)))
			}
		}
	}
	const first, key, public, checkpoint = "log/00000001.db", format.KeyFile, format.PublicKeyFile, format.CheckpointFile
	for name, c := range map[string]struct {
		do    []func(t *testing.T, data, older string)
		opens bool
	}{
		"as it was":                              {nil, true},
		"no segment":                             {[]func(*testing.T, string, string){remove(first)}, false},
		"no log":                                 {[]func(*testing.T, string, string){remove("log")}, false},
		"the private key alone":                  {[]func(*testing.T, string, string){remove("log", public, checkpoint)}, false},
		"the public key alone":                   {[]func(*testing.T, string, string){remove("log", key, checkpoint)}, false},
		"the checkpoint alone":                   {[]func(*testing.T, string, string){remove("log", key, public)}, false},
		"nothing":                                {[]func(*testing.T, string, string){remove("log", key, public, checkpoint)}, true},
		"an older segment":                       {[]func(*testing.T, string, string){back(first)}, false},
		"an older segment, and its checkpoint":   {[]func(*testing.T, string, string){back(first, checkpoint)}, true}, // see [segment.Reader.Witnessed]
		"an older segment, and it was witnessed": {[]func(*testing.T, string, string){func(t *testing.T, data, _ string) { back(checkpoint)(t, data, data); witnessed(t, data) }, back(first, checkpoint)}, false},
		"no checkpoint, which a crash may cause": {[]func(*testing.T, string, string){remove(checkpoint)}, true},
		"an empty one, which a power cut may":    {[]func(*testing.T, string, string){func(t *testing.T, data, _ string) { put(t, data, checkpoint, nil) }}, true},
		"an older one":                           {[]func(*testing.T, string, string){back(checkpoint)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := stopped(t)
			older := filepath.Join(t.TempDir(), "older")
			must(t, os.CopyFS(older, os.DirFS(data)))
			appendTo(t, data)
			for _, do := range c.do {
				do(t, data, older)
			}
			said := segment.CheckKey(data)
			log, err := decisionlog.Open(data, decisionlog.Options{})
			if err == nil {
				err = log.Close()
			}
			if (err == nil) != c.opens || (said == nil) != c.opens || err != nil && !(errors.Is(err, segment.ErrCut) && errors.Is(said, segment.ErrCut)) {
				t.Errorf("opened: %v; said before: %v", err, said)
			}
		})
	}
}

func put(t *testing.T, data, name string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(data, name), content, 0o600))
}

// witnessed has the newest checkpoint as one that witnesses have cosigned.
func witnessed(t *testing.T, data string) {
	t.Helper()
	signed, err := os.ReadFile(filepath.Join(data, format.CheckpointFile))
	must(t, err)
	put(t, data, format.WitnessedFile, signed)
}

func appendTo(t *testing.T, data string) {
	t.Helper()
	log, err := decisionlog.Open(data, decisionlog.Options{})
	if err == nil {
		err = log.Append(t.Context(), []record.Entry{{Kind: format.KindDecision, Tenant: "t", Decision: &record.Decision{}}})
		err = errors.Join(err, log.Close())
	}
	must(t, err)
}

// TestNoByteOfACheckpointLocksOut: one that was altered counts as none.
func TestNoByteOfACheckpointLocksOut(t *testing.T) {
	t.Parallel()
	data := stopped(t)
	name := filepath.Join(data, format.CheckpointFile)
	signed, err := os.ReadFile(name)
	must(t, err)
	for n := range signed {
		altered := append([]byte{}, signed...)
		altered[n] ^= 1
		put(t, data, format.CheckpointFile, altered)
		if err := segment.CheckKey(data); err != nil {
			t.Errorf("byte %d: %v", n, err)
		}
	}
}
