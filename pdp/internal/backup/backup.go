// Package backup is the format of a backup: [Write] writes one, and [Read] unpacks one that may be hostile. It knows names,
// sizes and hashes, and gives no file a meaning: package server chooses the files of a backup, and those that count again.
package backup

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/plainfile"
)

// # Format
//
// A backup is a tar file, in this order:
//
//	backup.json   a [Head]
//	data/NAME     each file, by its name below the data directory
//	end.json      an [End], which names each of these files, in their order
//
// A backup without end.json is cut. A reader refuses another format, and passes over members of the two documents that it
// does not know: a later program of the same format wrote them. A file has one name, and each part of the name is lower-case
// letters, digits, hyphens and dots. The hashes find damage. They find no forgery: any writer can make them.
const (
	Format   = 1
	headName = "backup.json"
	endName  = "end.json"
	below    = "data/"
)

// Head describes a backup before it is made.
type Head struct {
	Format  int       `json:"format"`
	Program string    `json:"program"` // the version that wrote it
	Began   time.Time `json:"began"`   // all that was answered before is in it
	Keys    bool      `json:"keys"`    // the private keys are in it
	Online  bool      `json:"online"`  // a server wrote it while it answered
}

// End describes a backup once all its files are written.
type End struct {
	Ended time.Time `json:"ended"`
	// Log is the decision log as it is in the backup.
	Log struct {
		Origin     string `json:"origin"`
		Size       uint64 `json:"size"`
		Root       string `json:"root"`
		Checkpoint string `json:"checkpoint"`
	} `json:"log"`
	Bundle string `json:"bundle,omitzero"` // the digest of the one in force
	Files  []File `json:"files"`
}

// File is a file of a backup.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Source is a file to be written.
type Source struct {
	Name string
	*os.File
}

// Write writes a backup. It adds the files to the end, and the time.
func Write(w io.Writer, head Head, files []Source, end End, now func() time.Time) error {
	head.Format = Format
	to := tar.NewWriter(w)
	err := document(to, headName, head, head.Began)
	for _, f := range files {
		if err == nil {
			end.Files, err = appendFile(to, f, end.Files)
		}
	}
	if err != nil {
		return err
	}
	end.Ended = now().UTC()
	return errors.Join(document(to, endName, end, end.Ended), to.Close())
}

func document(to *tar.Writer, name string, v any, at time.Time) error {
	content, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err == nil {
		content = append(content, '\n')
		err = to.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Format: tar.FormatGNU, Size: int64(len(content)), ModTime: at.Truncate(time.Second)})
	}
	if err == nil {
		_, err = to.Write(content)
	}
	return err
}

// appendFile writes a file as long as it was at first.
func appendFile(to *tar.Writer, f Source, files []File) ([]File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mode := int64(info.Mode().Perm() & 0o600)
	err = to.WriteHeader(&tar.Header{Name: below + f.Name, Mode: mode, Format: tar.FormatGNU, Size: info.Size(), ModTime: info.ModTime().Truncate(time.Second)})
	sum := sha256.New()
	if err == nil {
		_, err = io.CopyN(io.MultiWriter(to, sum), f, info.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	return append(files, File{f.Name, info.Size(), hex.EncodeToString(sum.Sum(nil))}), nil
}

// ErrCut means that the end of a backup is not there.
var ErrCut = errors.New("the backup ends too early: it was cut, or never finished")

// maxDocument bounds end.json, which has a line for each file.
const maxDocument = 64 << 20

var legal = regexp.MustCompile(`^([a-z0-9][a-z0-9.-]*/){0,2}[a-z0-9][a-z0-9.-]*$`)

// Read unpacks a backup into a directory that is empty, and no file outside of it; if dir is "", it writes nothing. It refuses
// the backup as a whole if any file is not as its end says, or is not known, and then some of its files may be there. known
// says how large the file of a name may be: negative is as large as it wants, and 0 that it is no file of a backup.
func Read(r io.Reader, dir string, known func(name string) (most int64)) (head Head, end End, err error) {
	from := tar.NewReader(r)
	h, err := from.Next()
	strange := errors.Is(err, tar.ErrHeader) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if strange || err == nil && h.Name != headName {
		return head, end, errors.New("it is no backup of this program")
	}
	if err != nil {
		return head, end, err
	}
	if err = readDocument(from, h, &head); err != nil {
		return head, end, err
	}
	if head.Format != Format {
		return head, end, fmt.Errorf("its format is %d, and this version reads %d: try the version %q that wrote it", head.Format, Format, head.Program)
	}
	var files []File
	for {
		h, err = from.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return head, end, ErrCut
		}
		if err != nil || h.Name == endName {
			break
		}
		f, err := unpack(from, h, dir, known)
		if err != nil {
			return head, end, err
		}
		files = append(files, f)
	}
	if err == nil {
		err = readDocument(from, h, &end)
	}
	if err != nil {
		return head, end, err
	}
	if !slices.Equal(files, end.Files) {
		return head, end, errors.New("its files are not those that its end.json names: it was altered, or its disk is damaged")
	}
	if _, err = from.Next(); !errors.Is(err, io.EOF) {
		return head, end, errors.New("something follows its end")
	}
	_, err = io.Copy(io.Discard, r) // the sum of the last bytes may come behind them
	return head, end, err
}

func readDocument(from io.Reader, h *tar.Header, into any) error {
	if h.Size > maxDocument {
		return fmt.Errorf("its %s is too large", h.Name)
	}
	content, err := io.ReadAll(from)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	if err == nil && json.Unmarshal(content, into) != nil {
		err = fmt.Errorf("its %s cannot be understood", h.Name)
	}
	return err
}

// unpack writes one file, durably.
func unpack(from io.Reader, h *tar.Header, dir string, known func(string) int64) (f File, err error) {
	name, isFile := strings.CutPrefix(h.Name, below)
	most := int64(0)
	if isFile && legal.MatchString(name) {
		most = known(name)
	}
	switch {
	case most == 0 || h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0: // a sparse file has such a record
		return f, fmt.Errorf("it has a member %q that no backup has", h.Name)
	case most > 0 && h.Size > most:
		return f, fmt.Errorf("its member %q is too large", h.Name)
	}
	sum := sha256.New()
	write := func(to io.Writer) error {
		n, err := io.Copy(to, from)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrCut
		}
		f = File{name, n, hex.EncodeToString(sum.Sum(nil))}
		return err
	}
	if dir == "" {
		err = write(sum)
		return f, err
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return f, err
	}
	to, err := plainfile.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // a second file of the name is an error
	if err != nil {
		return f, err
	}
	if err = write(io.MultiWriter(to, sum)); err == nil {
		err = to.Sync()
	}
	err = errors.Join(err, to.Chmod(os.FileMode(h.Mode)&0o200|0o400), to.Close())
	return f, err
}
