package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// fileLine is the line "file".
type fileLine struct {
	Export  string `json:"export"`
	SHA256  string `json:"sha256"`
	More    bool   `json:"more,omitempty"`
	Content []byte `json:"content"`
}

// bundleLine is the line "bundle".
type bundleLine struct {
	Export string `json:"export"`
	Digest string `json:"digest"`
	List   string `json:"list"`
}

// maxContent is how much of a file one line has.
const maxContent = 1 << 20

// bundles writes the files of bundles, each once.
type bundles struct {
	of      func(digest string) (map[string][]byte, error)
	written map[string]bool // digests, and hashes of files
}

// inBundle begins the member of a line that names the bundle.
var inBundle = []byte(`"bundle":"h1:`)

// bundle writes the bundle that a record names, if it is not written yet. One that is not kept is not there.
func (n *ndjson) bundle(r record.Record) error {
	if n.bundles == nil || !bytes.Contains(r.Line, inBundle) {
		return nil
	}
	parsed, err := record.Parse(r.Line)
	if err != nil {
		return err
	}
	digest, err := parsed.NamedBundle()
	if err != nil || digest == "" || n.bundles.written[digest] {
		return err
	}
	n.bundles.written[digest] = true
	files, err := n.bundles.of(digest)
	if err != nil || files == nil {
		return err
	}
	list := string(segment.BundleList(files)) // hashes all files
	for line := range strings.Lines(list) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if n.bundles.written[sum] {
			continue
		}
		n.bundles.written[sum] = true
		for content := files[name]; ; content = content[maxContent:] {
			part := content[:min(len(content), maxContent)]
			more := len(content) > maxContent
			if err := n.envelope(r.Sequence, fileLine{format.LineFile, sum, more, part}); err != nil {
				return err
			}
			if !more {
				break
			}
		}
	}
	return n.envelope(r.Sequence, bundleLine{format.LineBundle, digest, list})
}

// Files takes the lines "file" and "bundle" of an export. Its zero value is ready. A line whose content differs from its hash is an error.
type Files struct {
	// Keep keeps the files, for Of. Otherwise they are only checked.
	Keep bool

	mu      sync.Mutex                   // guards the rest: one goroutine reads an export, and others may ask for bundles
	content map[string][]byte            // by its hash
	lists   map[string]map[string]string // of hashes by path, by digest
	part    bytes.Buffer                 // of a file that is not whole yet, if it is kept
	sum     hash.Hash
	of      string
	size    int
}

// maxFiles is how many bytes the files of all bundles of an export may have, with their lists, and mostFiles how many there may be.
const (
	maxFiles  = 1 << 30
	mostFiles = 1 << 20
)

var errNoFile = errors.New("a file of a bundle is not what its hash says")

// File takes a line "file".
func (f *Files) File(sum string, content []byte, more bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of != "" && f.of != sum {
		return errNoFile
	}
	if f.of == "" {
		f.sum = sha256.New()
	}
	f.of = sum
	_, _ = f.sum.Write(content)
	if f.Keep {
		if f.size += len(content); f.size > maxFiles {
			return fmt.Errorf("the files of bundles have more than %d bytes", maxFiles)
		}
		f.part.Write(content)
	}
	if more {
		return nil
	}
	whole := bytes.Clone(f.part.Bytes())
	f.part.Reset()
	f.of = ""
	if hex.EncodeToString(f.sum.Sum(nil)) != sum {
		return errNoFile
	}
	if len(f.content) == mostFiles {
		return fmt.Errorf("the bundles have more than %d files", mostFiles)
	}
	if f.content == nil {
		f.content, f.lists = map[string][]byte{}, map[string]map[string]string{}
	}
	if f.content[sum] = nil; f.Keep {
		f.content[sum] = whole
	}
	return nil
}

// Bundle takes a line "bundle". Its files came before it.
func (f *Files) Bundle(digest, list string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := sha256.Sum256([]byte(list))
	if digest != "h1:"+base64.StdEncoding.EncodeToString(sum[:]) || f.of != "" {
		return errors.New("a bundle is not what its digest says")
	}
	if f.size += len(list); f.size > maxFiles && f.Keep {
		return fmt.Errorf("the lists of bundles, and their files, have more than %d bytes", maxFiles)
	}
	files := map[string]string{}
	for line := range strings.Lines(list) {
		hash, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if _, there := f.content[hash]; !there {
			return errors.New("a file of a bundle is not there")
		}
		files[name] = hash
	}
	if f.Keep && f.lists != nil {
		f.lists[digest] = files
	}
	return nil
}

// Of returns the files of a bundle, nil if it did not come.
func (f *Files) Of(digest string) map[string][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, there := f.lists[digest]
	if !there {
		return nil
	}
	files := map[string][]byte{}
	for name, hash := range list {
		files[name] = f.content[hash]
	}
	return files
}
