package verify

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strings"

	"policy-service/pdp/decisionlog/export"
)

// bundles are those that stand in an export. Each file is what its hash says, and each bundle what its digest says: nothing
// else vouches for them.
type bundles struct {
	files map[string]bool // that came, by their hashes
	of    string          // the hash of a file that is not whole yet
	sum   hash.Hash
}

// take takes a file, or the list of a bundle.
func (b *bundles) take(e *envelope) error {
	if e.Word == export.LineBundle {
		return b.list(e)
	}
	if b.of == "" {
		b.of, b.sum = e.SHA256, sha256.New()
	}
	_, _ = b.sum.Write(e.Content)
	switch {
	case b.of != e.SHA256:
		return problem(Altered, -1, "the rest of a file of a bundle is not there")
	case e.More:
		return nil
	case hex.EncodeToString(b.sum.Sum(nil)) != b.of:
		return problem(Altered, -1, "a file of a bundle is not what its hash says")
	case b.files == nil:
		b.files = map[string]bool{}
	}
	b.files[b.of], b.of = true, ""
	return nil
}

func (b *bundles) list(e *envelope) error {
	sum := sha256.Sum256([]byte(e.List))
	if e.Digest != "h1:"+base64.StdEncoding.EncodeToString(sum[:]) || b.of != "" {
		return problem(Altered, -1, "a bundle is not what its digest says")
	}
	for line := range strings.Lines(e.List) {
		if hash, _, _ := strings.Cut(line, "  "); !b.files[hash] {
			return problem(Missing, -1, "a file of a bundle is not there")
		}
	}
	return nil
}
