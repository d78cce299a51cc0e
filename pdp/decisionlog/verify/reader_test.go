package verify_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// leavesIn goes through a file with a reader.
func leavesIn(file []byte) (all []export.Leaf, err error) {
	r, err := export.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	for leaf, err := range r.Leaves() {
		if err != nil {
			return all, err
		}
		all = append(all, leaf)
	}
	return all, nil
}

// TestReaderSeesWhatVerifySees: an export whose lines are written otherwise may verify. Then a reader has all that it verifies, or an error.
func TestReaderSeesWhatVerifySees(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	file := exportReal(t, m.dirs[1], export.Options{}) // in which a record was redacted
	want, err := leavesIn(file)
	check(t, err)
	for name, otherwise := range map[string]string{"a space": `{"export": "leaves"`, "an escape": `{"export":"l\u0065aves"`} {
		changed := join(mend(split(bytes.ReplaceAll(file, []byte(`{"export":"leaves"`), []byte(otherwise)))))
		if r := verify.Export(bytes.NewReader(changed), verify.Options{}); bytes.Equal(changed, file) || !r.Verified() {
			t.Fatalf("%s: the test needs a line that is written otherwise, and verifies", name)
		}
		if got, err := leavesIn(changed); err == nil && len(got) != len(want) {
			t.Errorf("%s: the reader has %d of %d leaves", name, len(got), len(want))
		}
	}
}

// TestReaderOfHostileFile: a file without end takes no memory without end.
func TestReaderOfHostileFile(t *testing.T) {
	line := `{"export":"begin","format":1,"form":"log","origin":"log.example/%d","size":1}` + "\n"
	file := []byte(`{"export":"merge","format":1,"parts":1}` + "\n")
	for n := range 3 * format.MaxParts {
		file = fmt.Appendf(fmt.Appendf(file, `{"export":"part","part":%d}`+"\n", n), line, n)
	}
	file = append(file, `{"export":"merged","digest":""}`+"\n"...)
	if r, err := export.NewReader(bytes.NewReader(file)); err == nil {
		t.Errorf("it has %d parts", len(r.Parts))
	}
	var files export.Files
	content := make([]byte, 1<<20)
	for range 200 {
		if files.File("a hash", content, true) != nil {
			break
		}
	}
	var is runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&is)
	if is.HeapAlloc > 150<<20 {
		t.Errorf("a file of which nothing is kept takes %d MiB", is.HeapAlloc>>20)
	}
	runtime.KeepAlive(&files)
}

// TestChangedBundles: no bundle is in an export in part, nor as another one, whatever the last line says.
func TestChangedBundles(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := openReal(t, data)
	kept, err := segment.OpenBundles(data)
	check(t, err)
	for n, files := range []map[string][]byte{
		{"a.cedar": bytes.Repeat([]byte("// a policy\n"), 200_000), "b.cedar": []byte("// b\n")}, // of three lines, and of one
		{"b.cedar": []byte("// b\n"), "c.cedar": []byte("// c\n")},
	} {
		digest, err := kept.Put(files)
		check(t, err)
		check(t, l.Append(t.Context(), []record.Entry{{ID: id(n), Kind: format.KindDecision, Tenant: "a",
			Request: &record.Request{Subject: jsontext.Value(`{"type":"user","id":"alice"}`)}, Decision: &record.Decision{Bundle: digest}}}))
	}
	check(t, l.Close())
	lines := split(exportReal(t, data, export.Options{Bundles: true}))
	refused := func(what string, changed [][]byte) {
		t.Helper()
		file := join(mend(changed))
		if r := verify.Export(bytes.NewReader(file), verify.Options{}); r.Verified() || len(r.Proved) > 0 {
			t.Errorf("%s: it verifies", what)
		}
	}
	if r := verify.Export(bytes.NewReader(join(mend(slices.Clone(lines)))), verify.Options{}); !r.Verified() {
		t.Fatal(r.Problem)
	}
	of := 0
	for n, line := range lines {
		if !bytes.HasPrefix(line, []byte(`{"export":"file"`)) && !bytes.HasPrefix(line, []byte(`{"export":"bundle"`)) {
			continue
		}
		of++
		what := fmt.Sprintf("line %d, %.40s", n+1, line)
		refused(what+" is gone", slices.Delete(slices.Clone(lines), n, n+1))
		if bytes.HasPrefix(lines[n+1], []byte(`{"export":"file"`)) && !bytes.Contains(line, []byte(`"more"`)) {
			continue // two files in another order are the same files
		}
		swapped := slices.Clone(lines)
		swapped[n], swapped[n+1] = swapped[n+1], swapped[n]
		refused(what+" stands behind the next", swapped)
		for _, at := range []int{len(line) / 2, len(line) - 10} {
			altered := bytes.Clone(line)
			altered[at] ^= 1
			changed := slices.Clone(lines)
			changed[n] = altered
			refused(fmt.Sprint(what, " is altered at ", at), changed)
		}
	}
	if of != 7 {
		t.Errorf("the export has %d lines of bundles", of)
	}
}
