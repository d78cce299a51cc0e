package verify_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"policy-service/pdp/decisionlog/export"
	"policy-service/pdp/decisionlog/verify"
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
	for n := range 3 * export.MaxParts {
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
