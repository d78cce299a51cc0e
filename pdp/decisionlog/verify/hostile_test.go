package verify_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/night"
)

// TestPagesThatNameThemselves: bbolt would follow such a page until the stack overflows,
// which nothing recovers from.
func TestPagesThatNameThemselves(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(2000)
	w.close()
	whole, err := os.ReadFile(w.path(1))
	w.must(err)
	size, branches := os.Getpagesize(), 0
	for at := 2 * size; at+size <= len(whole); at += size {
		if binary.LittleEndian.Uint16(whole[at+8:]) != 1 {
			continue
		}
		branches++
		for _, to := range []uint64{uint64(at / size), 2, 3, 1 << 40, 1<<64 - 1} {
			changed := bytes.Clone(whole)
			for i := range int(binary.LittleEndian.Uint16(whole[at+10:])) {
				binary.LittleEndian.PutUint64(changed[at+16+16*i+8:], to)
			}
			w.must(os.WriteFile(w.path(1), changed, 0o600))
			if r := verify.Directory(w.data, verify.Options{}); r.Verified() && r.Size != int64(len(w.lines)) {
				t.Errorf("page %d: it verifies with %d records", at/size, r.Size)
			}
		}
	}
	if branches == 0 {
		t.Error("there is no branch page to spoil")
	}
}

// TestHostileExports: lines without an end, nesting without a bottom, lengths that lie.
func TestHostileExports(t *testing.T) {
	t.Parallel()
	hostileExports(t, func(string) {})
}

// TestHostileExportsTakeLittle: however long what they have is, little of it is held at a time.
func TestHostileExportsTakeLittle(t *testing.T) {
	night.Measures(t)
	hostileExports(t, func(name string) {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.Sys-m.HeapReleased > 300<<20 {
			t.Errorf("%s: %d MB were taken", name, m.Sys>>20)
		}
	})
}

// hostileExports verifies exports that none is to believe, and calls after when it has come to the end of one.
func hostileExports(t *testing.T, after func(name string)) {
	w := newWriter(t, t.TempDir())
	w.records(3)
	w.close()
	begin := bytes.SplitAfter(w.export(nil, false), []byte("\n"))[0]
	for name, hostile := range map[string]io.Reader{
		"a line of 1 GB":        io.MultiReader(bytes.NewReader(begin), endless("x", 1<<30)),
		"a first line of 1 GB":  endless(`{"export":"begin",`, 1<<30),
		"nesting of 16 MB":      strings.NewReader(string(begin) + `{"sequence":` + strings.Repeat("[", 16<<20-100) + "\n"),
		"hashes of 1 GB":        io.MultiReader(bytes.NewReader(begin), endless(`{"export":"leaves","first":0,"why":"redacted","hashes":["`+tlog.Hash{}.String()+"\"]}\n", 1<<30)),
		"an unknown word":       strings.NewReader(string(begin) + `{"export":"more"}` + "\n"),
		"no JSON":               strings.NewReader(string(begin) + `{"sequence":0` + "\n"),
		"a sequence of 1e0":     strings.NewReader(string(begin) + strings.Replace(string(w.lines[0]), `:0,`, `:0e0,`, 1) + "\n"),
		"a name twice":          strings.NewReader(string(begin) + strings.Replace(string(w.lines[0]), `{`, `{"sequence":0,`, 1) + "\n"),
		"another format":        strings.NewReader(strings.Replace(string(begin), `"format":1`, `"format":2`, 1)),
		"a negative size":       strings.NewReader(strings.Replace(string(begin), `"size":4`, `"size":-4`, 1)),
		"a size that is a text": strings.NewReader(strings.Replace(string(begin), `"size":4`, `"size":"4"`, 1)),
	} {
		r := verify.Export(hostile, verify.Options{})
		if r.Verified() || r.Problem == nil {
			t.Errorf("%s: it verifies", name)
		}
		after(name)
	}
}

// endless repeats a text up to a size, without ever holding it.
func endless(text string, size int64) io.Reader {
	return io.LimitReader(&repeat{text: text}, size)
}

type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], r.text[r.at:])
		n, r.at = n+c, (r.at+c)%len(r.text)
	}
	return n, nil
}

// TestConsistency: what continues, what is another history, and what is shorter.
func TestConsistency(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(20)
	old := string(w.checkpoint())
	w.records(13)
	w.close()
	kept := string(w.signed)
	proof, err := tlog.ProveTree(34, 21, w)
	w.must(err)
	fork := newWriter(t, t.TempDir())
	fork.clock = fork.clock.Add(1)
	fork.records(33)
	fork.close()
	forged := newSeeded(t, t.TempDir(), "forged")
	forged.records(33)
	forged.close()
	key := verify.Options{Key: w.keys[0]}
	for _, test := range []struct {
		name, older, newer string
		proof              []tlog.Hash
		o                  verify.Options
		want               verify.Code
	}{
		{"continued", old, kept, proof, key, verify.Verified},
		{"the same", kept, kept, nil, key, verify.Verified},
		{"without a key", old, kept, proof, verify.Options{}, verify.Usage},
		{"without a proof", old, kept, nil, key, verify.Forked},
		{"another proof", old, kept, proof[1:], key, verify.Forked},
		{"shorter", kept, old, proof, key, verify.Truncated},
		{"forked", old, string(fork.signed), proof, key, verify.Forked},
		{"forked at the same size", kept, string(fork.signed), proof, key, verify.Forked},
		{"another key", old, string(forged.signed), proof, key, verify.OtherKey},
		{"altered", old, strings.Replace(kept, "\n34\n", "\n35\n", 1), proof, key, verify.Altered},
	} {
		origin, _, _ := strings.Cut(test.newer, "\n")
		line, err := json.Marshal(map[string]any{
			"export": "consistency", "format": 1, "origin": origin, "old": test.older, "new": test.newer, "hashes": test.proof,
		}, json.Deterministic(true))
		w.must(err)
		if r := verify.Export(bytes.NewReader(append(line, '\n')), test.o); r.Code != test.want {
			t.Errorf("%s: %v, want %v: %v", test.name, r.Code, test.want, r.Problem)
		}
	}
}

// TestReportSays: where the first bad record is, in words and in numbers.
func TestReportSays(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(9)
	w.close()
	l := split(w.export(nil, false))
	l[4] = bytes.Replace(l[4], []byte("sequence"), []byte("sequenze"), 1)
	r := verify.Export(bytes.NewReader(join(l)), verify.Options{})
	if r.Problem == nil || r.Problem.Line != 5 || r.Problem.Sequence != 3 || !strings.HasPrefix(r.Problem.Error(), "line 5: record 3: ") {
		t.Errorf("%v", r.Problem)
	}
	w.must(os.Truncate(w.path(1), 100))
	r = verify.Directory(w.data, verify.Options{})
	if r.Problem == nil || r.Problem.File != w.path(1) {
		t.Errorf("%v", r.Problem)
	}
}
