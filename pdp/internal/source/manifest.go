package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/plainfile"
)

// manifestEnd is the last line of a MANIFEST. A file that was cut off anywhere does not end
// with it.
const manifestEnd = "# end\n"

// parseManifest reads a MANIFEST, which says exactly which files a bundle holds, for operators
// who copy a bundle file by file. This is its whole format:
//
//	<64 lowercase hex digits of SHA-256><space><space or *><path>\n
//	…
//	# end\n
//
// The lines are those that `sha256sum` writes and `sha256sum --check` reads, and then the last
// line. Paths are slash paths inside the bundle, without "./", "..", backslash or control
// characters, each once. The order does not matter. There are no other comments and no blank
// lines. Lines end in LF alone: for sha256sum a CR would be part of the name. The format may
// grow only behind a "# " that today's parser refuses, so an old version never
// half-understands a new file.
func parseManifest(data []byte) (map[string]string, document.Problems) {
	var ps document.Problems
	body, complete := bytes.CutSuffix(data, []byte(manifestEnd))
	if !complete || len(body) > 0 && body[len(body)-1] != '\n' {
		ps.Add("MANIFEST", 0, 0, "manifest_incomplete",
			"it does not end in the line \"# end\", perhaps it is half-written",
			"write it whole, with \"# end\" and a newline last, or remove it")
		return nil, ps
	}
	sums, number := map[string]string{}, 0
	for line := range strings.Lines(string(body)) {
		number++
		sum, name, ok := parseManifestLine(strings.TrimSuffix(line, "\n"))
		switch _, twice := sums[name]; {
		case !ok:
			ps.Add("MANIFEST", number, 1, "manifest_line",
				"this is not a line as sha256sum writes it for a file of the bundle",
				"write it again with policy-service check --write-manifest")
		case twice:
			ps.Add("MANIFEST", number, 1, "manifest_twice", "this path is listed twice", "remove one of the lines")
		default:
			sums[name] = sum
		}
	}
	return sums, ps
}

// parseManifestLine reads one line of a MANIFEST.
func parseManifestLine(line string) (sum, name string, ok bool) {
	if len(line) <= 66 || line[64] != ' ' || line[65] != ' ' && line[65] != '*' {
		return "", "", false
	}
	sum, name = line[:64], line[66:]
	_, err := hex.DecodeString(sum)
	ok = err == nil && sum == strings.ToLower(sum) && name != "MANIFEST" && name != "." && fs.ValidPath(name) &&
		legalName(name)
	return sum, name, ok
}

// checkManifest compares the files that were read with the MANIFEST, if there is one.
func (r *reader) checkManifest() {
	if !r.manifest {
		return
	}
	data, ok := r.read("MANIFEST", manifestKind)
	if !ok {
		return
	}
	sums, ps := parseManifest(data)
	if r.files.Problems = append(r.files.Problems, ps...); ps.Refuse() {
		return
	}
	for file := range r.drafts {
		delete(sums, file)
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		r.checkListed(name, sums[name])
	}
	for name := range r.files.Content {
		_, drafted := r.drafts[name]
		if _, listed := sums[name]; !listed && !drafted {
			r.problem(name, "manifest_unlisted", "the MANIFEST does not list this file",
				"remove the file, or write the MANIFEST again with policy-service check --write-manifest")
		}
	}
}

// checkListed compares one listed file, whether it was loaded or not.
func (r *reader) checkListed(name, want string) {
	if _, err := fs.Stat(r.fsys, name); errors.Is(err, fs.ErrNotExist) {
		r.problem(name, "manifest_absent", "the MANIFEST lists this file, and there is none",
			"copy the file, or write the MANIFEST again with policy-service check --write-manifest")
		return
	}
	got, ok := r.sum(name)
	if ok && got != want {
		r.problem(name, "manifest_differs", "this is not the content that the MANIFEST lists",
			"copy the file again, or write the MANIFEST again with policy-service check --write-manifest")
	}
}

// sum hashes a file. It hashes the content that was loaded, because a second reading could see
// another content. A file that was not loaded is read for the hash alone, and never all of it is in memory.
func (r *reader) sum(name string) (string, bool) {
	if data, loaded := r.files.Content[name]; loaded {
		return fmt.Sprintf("%x", sha256.Sum256(data)), true
	}
	k := &kind{"a file", entityKind.max}
	f, _ := r.open(name, k)
	if f == nil {
		return "", false
	}
	defer f.Close()
	h := sha256.New()
	// The file may have grown since it was measured.
	n, err := io.Copy(h, io.LimitReader(f, k.max+1))
	switch {
	case err != nil:
		r.unreadable(name, err)
	case n > k.max:
		r.tooLarge(name, k)
	default:
		return fmt.Sprintf("%x", h.Sum(nil)), true
	}
	return "", false
}

// Manifest makes the MANIFEST of the source as it is now: every file that [Source.Read] loads,
// in byte order of path. It does not list files that decide nothing: a deployment may leave
// tests out, and an edit of a test needs no new MANIFEST. It ignores a MANIFEST that exists
// already. The problems are those of the files. If one of them is an error, there is no
// MANIFEST.
func (s Source) Manifest() ([]byte, document.Problems) {
	files, _ := s.read(context.Background(), func(r *reader) {
		r.manifest = true // the files will be checked against the new MANIFEST
		r.bundle()
	})
	problems := files.Problems
	if problems.Refuse() {
		return nil, problems
	}
	var b bytes.Buffer
	for _, name := range files.Names() {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files.Content[name]), name)
	}
	b.WriteString(manifestEnd)
	return b.Bytes(), problems
}

// WriteManifest writes [Source.Manifest] into the source's directory, by rename. So a reader
// of the directory sees either the old MANIFEST or the new one. If the files are at fault, the
// error is of type [document.Problems].
func (s Source) WriteManifest() error {
	if s.Dir == "" {
		return errors.New("a MANIFEST can only be written into a directory")
	}
	data, problems := s.Manifest()
	if problems.Refuse() {
		return problems
	}
	// The draft has a name that begins with a dot, which is not part of any bundle. The service
	// may run as another user, so everybody can read the file. After a crash the old MANIFEST may
	// be there again. If the files differ from it, the bundle is refused until it is written anew.
	return plainfile.Publish(filepath.Join(s.Dir, "MANIFEST"), data)
}
