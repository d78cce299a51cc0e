package backup_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/backup"
)

var moment = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func now() time.Time { return moment }

// known has log/… of any size, and small of at most ten bytes.
func known(name string) int64 {
	switch {
	case strings.HasPrefix(name, "log/"):
		return -1
	case name == "small":
		return 10
	}
	return 0
}

// written is a backup of two files.
func written(t *testing.T) []byte {
	t.Helper()
	var files []backup.Source
	for name, content := range map[string]string{"small": "0123456789", "log/00000001.db": strings.Repeat("a segment ", 1000)} {
		path := filepath.Join(t.TempDir(), "f")
		must(t, os.WriteFile(path, []byte(content), 0o600))
		f, err := os.Open(path)
		must(t, err)
		defer func() { _ = f.Close() }()
		files = append(files, backup.Source{Name: name, File: f})
	}
	slices.SortFunc(files, func(a, b backup.Source) int { return strings.Compare(a.Name, b.Name) })
	var to bytes.Buffer
	must(t, backup.Write(&to, backup.Head{Program: "v1", Began: moment}, files, backup.End{Bundle: "h1:x"}, now))
	return to.Bytes()
}

func TestReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	head, end, err := backup.Read(bytes.NewReader(written(t)), dir, known)
	must(t, err)
	if head.Program != "v1" || !head.Began.Equal(moment) || end.Bundle != "h1:x" || len(end.Files) != 2 || end.Files[1].Size != 10 {
		t.Errorf("got %+v and %+v", head, end)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "small")); err != nil || string(content) != "0123456789" {
		t.Errorf("got %q, %v", content, err)
	}
	if _, again, err := backup.Read(bytes.NewReader(written(t)), "", known); err != nil || !slices.Equal(again.Files, end.Files) {
		t.Errorf("without a directory: %+v, %v", again, err)
	}
}

// A backup that is cut anywhere is none, nor is one in which a byte of a file differs.
func TestRefusesWhatWasCutOrAltered(t *testing.T) {
	t.Parallel()
	all := written(t)
	for size := 0; size < len(all)-1536; size += 100 { // at the end, tar has blocks that say nothing
		if _, _, err := backup.Read(bytes.NewReader(all[:size]), t.TempDir(), known); err == nil {
			t.Errorf("the first %d of %d bytes are taken", size, len(all))
		}
	}
	if _, _, err := backup.Read(bytes.NewReader(all[:len(all)-2000]), "", known); !errors.Is(err, backup.ErrCut) {
		t.Errorf("got %v", err)
	}
	altered := bytes.Replace(all, []byte("segment"), []byte("Segment"), 1)
	if _, _, err := backup.Read(bytes.NewReader(altered), t.TempDir(), known); err == nil || !strings.Contains(err.Error(), "was altered") {
		t.Errorf("an altered file: %v", err)
	}
	later := bytes.Replace(all, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	if _, _, err := backup.Read(bytes.NewReader(later), t.TempDir(), known); err == nil || !strings.Contains(err.Error(), `try the version "v1"`) {
		t.Errorf("a later format: %v", err)
	}
}

// Members that no backup has are refused, and nothing is written outside of the directory.
func TestRefusesHostileMembers(t *testing.T) {
	t.Parallel()
	for name, member := range map[string]tar.Header{
		"up":         {Name: "data/../../evil", Typeflag: tar.TypeReg},
		"up in log":  {Name: "data/log/../../../evil", Typeflag: tar.TypeReg},
		"absolute":   {Name: "/tmp/evil", Typeflag: tar.TypeReg},
		"beside":     {Name: "evil", Typeflag: tar.TypeReg},
		"unknown":    {Name: "data/evil", Typeflag: tar.TypeReg},
		"backslash":  {Name: `data/log\..\evil`, Typeflag: tar.TypeReg},
		"link":       {Name: "data/log/a.db", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		"hard link":  {Name: "data/log/a.db", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		"directory":  {Name: "data/log/", Typeflag: tar.TypeDir},
		"device":     {Name: "data/log/a.db", Typeflag: tar.TypeChar},
		"fifo":       {Name: "data/log/a.db", Typeflag: tar.TypeFifo},
		"too large":  {Name: "data/small", Typeflag: tar.TypeReg, Size: 11},
		"twice":      {Name: "data/log/00000001.db", Typeflag: tar.TypeReg},
		"with a pax": {Name: "data/log/a.db", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"X.y": "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var to bytes.Buffer
			from, w := tar.NewReader(bytes.NewReader(written(t))), tar.NewWriter(&to)
			for {
				h, err := from.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				must(t, err)
				if h.Name == "end.json" {
					must(t, w.WriteHeader(&member))
					_, err := w.Write(make([]byte, member.Size))
					must(t, err)
				}
				must(t, w.WriteHeader(h))
				_, err = io.Copy(w, from)
				must(t, err)
			}
			must(t, w.Close())
			around := t.TempDir()
			dir := filepath.Join(around, "a", "b")
			must(t, os.MkdirAll(dir, 0o700))
			if _, _, err := backup.Read(&to, dir, known); err == nil {
				t.Error("it is taken")
			}
			must(t, filepath.WalkDir(around, func(path string, d fs.DirEntry, err error) error {
				if !d.IsDir() && !strings.HasPrefix(path, dir) {
					t.Errorf("it wrote %s", path)
				}
				return err
			}))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
