package verify

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strings"

	"policy-service/pdp/internal/decisionlog/format"
)

// bundles are those that stand in an export. Each file has its hash, and each bundle its digest: nothing
// else vouches for them.
type bundles struct {
	files    map[string]bool // that came, by their hashes: whether a bundle lists them
	unlisted int             // how many of them no bundle lists yet
	of       string          // the hash of a file that is not whole yet
	sum      hash.Hash
}

// mostFiles bounds the memory: no log names bundles of so many files.
const mostFiles = 1 << 20

// whole refuses files whose bundle does not stand behind them.
func (b *bundles) whole() error {
	if b.of != "" || b.unlisted > 0 {
		return problem(Missing, -1, "the rest of a bundle is not there")
	}
	return nil
}

// take takes a file, or the list of a bundle.
func (b *bundles) take(e *envelope) error {
	if e.Word == format.LineBundle {
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
	case len(b.files) == mostFiles:
		return problem(Unreadable, -1, "its bundles have more than %d files", mostFiles)
	case b.files == nil:
		b.files = map[string]bool{}
	}
	if _, again := b.files[b.of]; !again {
		b.files[b.of] = false
		b.unlisted++
	}
	b.of = ""
	return nil
}

func (b *bundles) list(e *envelope) error {
	sum := sha256.Sum256([]byte(e.List))
	if e.Digest != "h1:"+base64.StdEncoding.EncodeToString(sum[:]) || b.of != "" {
		return problem(Altered, -1, "a bundle is not what its digest says")
	}
	for line := range strings.Lines(e.List) {
		hash, _, _ := strings.Cut(line, "  ")
		listed, came := b.files[hash]
		if !came {
			return problem(Missing, -1, "a file of a bundle is not there")
		}
		if !listed {
			b.files[hash] = true
			b.unlisted--
		}
	}
	return nil
}
