package verify

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// maxCheckpoint bounds a checkpoint: three lines, what may be added to them, and signatures.
const maxCheckpoint = 64 << 10

// A checkpoint is a signed statement of how long the log is and of what it consists, in
// the form of c2sp.org/tlog-checkpoint: origin, size and root on a line each, then lines
// that later versions may add, then the signatures of c2sp.org/signed-note.
type checkpoint struct {
	text   string // whole
	signed string // without the signatures
	origin string
	size   int64
	root   tlog.Hash
}

// openCheckpoint checks the signature of one of keys and parses what is signed. Nothing
// unsigned is parsed, but to say which key it is not signed with.
func openCheckpoint(text string, keys note.Verifiers) (checkpoint, error) {
	if len(text) > maxCheckpoint {
		return checkpoint{}, problem(Altered, -1, "a checkpoint of %d bytes", len(text))
	}
	n, err := note.Open([]byte(text), keys)
	if err != nil {
		return checkpoint{}, noteProblem(err)
	}
	c, err := parseCheckpoint(n.Text)
	c.text = text
	return c, err
}

// unverifiedCheckpoint reads a checkpoint whose signature is checked later, once the
// log's keys are known.
func unverifiedCheckpoint(text string) (checkpoint, error) {
	_, err := openCheckpoint(text, note.VerifierList())
	if asProblem(err).Code != OtherKey {
		return checkpoint{}, err
	}
	signed, _, _ := strings.Cut(text, "\n\n")
	c, err := parseCheckpoint(signed + "\n")
	c.text = text
	return c, err
}

// noteProblem says what is wrong with a signature. A key that is not known is another
// key, whether or not its signature is a good one.
func noteProblem(err error) *Problem {
	if unknown := (*note.UnverifiedNoteError)(nil); errors.As(err, &unknown) {
		var names []string
		for _, s := range unknown.Note.UnverifiedSigs {
			names = append(names, s.Name+"+"+strconv.FormatUint(uint64(s.Hash), 16))
		}
		return problem(OtherKey, -1, "the checkpoint is signed by %s, which is not the key it was to be signed with", strings.Join(names, ", "))
	}
	return problem(Altered, -1, "the checkpoint's signature does not hold: %v", err)
}

// parseCheckpoint accepts each checkpoint in one spelling only, so that two texts never
// mean the same.
func parseCheckpoint(text string) (c checkpoint, err error) {
	bad := func(what string) (checkpoint, error) {
		return checkpoint{}, problem(Altered, -1, "the checkpoint's %s", what)
	}
	if !strings.HasSuffix(text, "\n") {
		return bad("last line is cut off")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 || lines[0] == "" {
		return bad("three lines are not there")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return bad("size is not a number")
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize || base64.StdEncoding.EncodeToString(root) != lines[2] {
		return bad("root is not a hash")
	}
	for _, extension := range lines[3:] {
		if extension == "" {
			return bad("extension line is empty")
		}
	}
	return checkpoint{origin: lines[0], size: size, root: tlog.Hash(root), signed: text}, nil
}
