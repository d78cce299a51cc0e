package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"

	"policy-service/pdp/internal/plainfile"
)

// Bundles keeps the files of every bundle that decided something, each file once,
// under the SHA-256 of its content:
//
//	log/bundles/<64 hexadecimal digits>         a policy, an entity file, …
//	log/bundles/<64 hexadecimal digits>.list    a list
//
// A bundle's digest is dirhash.Hash1: "h1:" and the base64 SHA-256 of its list,
// one line "<hex SHA-256 of the file>  <path>\n" a file, by path. So the digest
// in a record is the name of a list here, and nothing else is needed to find a
// bundle or to check it. Early builds kept lists without their ending, as files,
// and a file that an author wrote like a list could name the files of others: see
// [Bundles.Listed]. Files are never changed or removed. A file whose name begins
// with a dot is one that was being written.
type Bundles struct{ dir string }

// ErrNoSuchBundle is returned for a digest that nothing is kept under.
var ErrNoSuchBundle = errors.New("no bundle is kept under this digest")

// maxFileBytes is the maximum size of a file of a bundle.
const maxFileBytes = 1 << 30

// BundlesDir is the directory of bundles below the data directory.
const BundlesDir = "log/bundles"

// BundlesPath returns the directory of bundles in a data directory.
func BundlesPath(data string) string { return filepath.Join(data, filepath.FromSlash(BundlesDir)) }

// OpenBundles opens the store in a data directory. It creates the store if there is none.
func OpenBundles(data string) (*Bundles, error) {
	dir := BundlesPath(data)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Bundles{dir: dir}, nil
}

// Put keeps a bundle and returns its digest. The bundle is on disk when Put returns: a decision record that names a bundle
// must not outlive the bundle in a crash.
func (b *Bundles) Put(files map[string][]byte) (digest string, err error) {
	digest, err = dirhash.Hash1(slices.Collect(maps.Keys(files)), func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files[name])), nil
	})
	if err != nil {
		return "", err
	}
	for _, content := range files {
		if err := b.writeOnce(content, ""); err != nil {
			return "", err
		}
	}
	// The list is last: where it stands, all that it names stands.
	if err := b.writeOnce(BundleList(files), listEnding); err != nil {
		return "", err
	}
	return digest, nil
}

// writeOnce writes content under its hash and an ending, unless it is already there and whole.
func (b *Bundles) writeOnce(content []byte, ending string) error {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	if kept, err := b.readChecked(name, ending); err == nil && bytes.Equal(kept, content) {
		return nil
	}
	return plainfile.Replace(filepath.Join(b.dir, name+ending), content)
}

// BundleList returns the list of files from which the digest of a bundle is computed.
func BundleList(files map[string][]byte) []byte {
	var list bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return list.Bytes()
}

// VisibleFiles returns the files of a bundle that a reader may see who may see only some tenants; nil means all. Files below
// tenants/ belong to one tenant. All other files are visible, except a MANIFEST, which names the files of all tenants.
func VisibleFiles(files map[string][]byte, tenants []string) map[string][]byte {
	if tenants == nil {
		return files
	}
	cut := map[string][]byte{}
	for path, content := range files {
		below, inTenant := strings.CutPrefix(path, "tenants/")
		tenant, _, _ := strings.Cut(below, "/")
		if path == "MANIFEST" || inTenant && !slices.Contains(tenants, tenant) {
			continue
		}
		cut[path] = content
	}
	return cut
}

// listEnding ends the name of a list.
const listEnding = ".list"

// Files returns the files of the bundle that a record names, by path. It returns an error for content that does not match its
// name.
func (b *Bundles) Files(digest string) (map[string][]byte, error) {
	return b.readListed(digest, listEnding, "")
}

// Listed is [Bundles.Files] without the lists of early builds. Use it for a digest that a caller names: a caller could compute
// the digest of a file that looks like a list.
func (b *Bundles) Listed(digest string) (map[string][]byte, error) {
	return b.readListed(digest, listEnding)
}

// readListed returns the files of a list that is kept with one of the endings.
func (b *Bundles) readListed(digest string, endings ...string) (map[string][]byte, error) {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(digest, "h1:"))
	if err != nil || len(sum) != sha256.Size || !strings.HasPrefix(digest, "h1:") {
		return nil, fmt.Errorf("%w: %q is no digest", ErrNoSuchBundle, digest)
	}
	var list []byte
	for _, ending := range endings {
		if list, err = b.readChecked(hex.EncodeToString(sum), ending); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoSuchBundle, digest)
	}
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for line := range strings.Lines(string(list)) {
		hash, path, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			return nil, fmt.Errorf("%s is kept, but is no list of files", digest)
		}
		if files[path], err = b.readChecked(hash, ""); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", path, digest, err)
		}
	}
	return files, nil
}

// readChecked returns the content under a hash and an ending, after comparing it with the hash.
func (b *Bundles) readChecked(name, ending string) ([]byte, error) {
	if len(name) != 2*sha256.Size || strings.Trim(name, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("%q is no hash", name)
	}
	content, err := plainfile.Read(filepath.Join(b.dir, name+ending), maxFileBytes)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != name {
		return nil, fmt.Errorf("%s is not what was kept: its content has been altered", name)
	}
	return content, nil
}
