package c2sp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// ProofSuffix is how the name of a file with a [Proof] ends.
const ProofSuffix = ".tlog-proof"

// MaxProofBytes is how long the text of a proof may be.
const MaxProofBytes = 128 << 10

// Proof is the proof that one entry is in a log: tlog-proof.
type Proof struct {
	// Extra is of the application, and nothing proves it. nil is none.
	Extra      []byte
	Index      int64
	Hashes     tlog.RecordProof
	Checkpoint []byte // with its signatures
}

const (
	proofHeader = "c2sp.org/tlog-proof@v1"
	extraWord   = "extra "
	indexWord   = "index "
	// mostHashes is how many hashes a proof has at most: the height of the greatest tree.
	mostHashes = 63
)

// Text is the proof as it is written.
func (p Proof) Text() []byte {
	var b strings.Builder
	b.WriteString(proofHeader + "\n")
	if p.Extra != nil {
		b.WriteString(extraWord + base64.StdEncoding.EncodeToString(p.Extra) + "\n")
	}
	fmt.Fprintf(&b, "%s%d\n", indexWord, p.Index)
	for _, hash := range p.Hashes {
		b.WriteString(hash.String() + "\n")
	}
	b.WriteString("\n")
	b.Write(p.Checkpoint)
	return []byte(b.String())
}

// ParseProof reads a proof. It verifies nothing.
func ParseProof(text []byte) (p Proof, err error) {
	if len(text) > MaxProofBytes {
		return p, fmt.Errorf("it has %d bytes, and a proof has at most %d", len(text), MaxProofBytes)
	}
	head, checkpoint, ok := strings.Cut(string(text), "\n\n")
	rest, isProof := strings.CutPrefix(head, proofHeader+"\n")
	if !ok || !isProof {
		return p, fmt.Errorf("it does not begin with the line %s, or has no checkpoint behind an empty line", proofHeader)
	}
	p.Checkpoint = []byte(checkpoint)
	if extra, found := strings.CutPrefix(rest, extraWord); found {
		extra, rest, _ = strings.Cut(extra, "\n")
		if p.Extra, err = base64.StdEncoding.Strict().DecodeString(extra); err != nil {
			return p, errors.New("line 2: extra is no base64")
		}
	}
	line, hashes, more := strings.Cut(rest, "\n")
	index, found := strings.CutPrefix(line, indexWord)
	p.Index, err = strconv.ParseInt(index, 10, 64)
	if !found || err != nil || p.Index < 0 || strconv.FormatInt(p.Index, 10) != index {
		return p, errors.New("it has no line with the index, a number from 0 on")
	}
	for more {
		line, hashes, more = strings.Cut(hashes, "\n")
		hash, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(hash) != tlog.HashSize {
			return p, fmt.Errorf("%.50q is no hash", line)
		}
		if p.Hashes = append(p.Hashes, tlog.Hash(hash)); len(p.Hashes) > mostHashes {
			return p, fmt.Errorf("it has more than %d hashes", mostHashes)
		}
	}
	return p, nil
}
