package segment

import (
	"encoding/base64"
	"fmt"
	"policy-service/pdp/internal/decisionlog/format"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is a signed checkpoint with what it says.
type Checkpoint struct {
	Note    []byte
	Origin  string
	Size    uint64
	Root    tlog.Hash
	Time    time.Time
	NextKey string // "" unless it signs a new key in
}

// sign makes the note of c.
func (c *Checkpoint) Sign(signers ...note.Signer) (err error) {
	text := fmt.Sprintf("%s\n%d\n%s\n%s %s\n", c.Origin, c.Size, c.Root, format.ExtensionTime, c.Time.UTC().Format(format.TimeLayout))
	if c.NextKey != "" {
		text += format.ExtensionNextKey + " " + c.NextKey + "\n"
	}
	c.Note, err = note.Sign(&note.Note{Text: text}, signers...)
	return err
}

// key is the key in the bucket of checkpoints.
func (c Checkpoint) Key() []byte { return append(Number(c.Size), Number(uint64(c.Time.UnixNano()))...) }

// ParseCheckpoint reads a checkpoint. Its signatures are verified where known is
// not nil: at least one must be of a known key.
func ParseCheckpoint(signed []byte, known note.Verifiers) (Checkpoint, error) {
	if len(signed) > format.MaxCheckpointBytes {
		return Checkpoint{}, fmt.Errorf("a checkpoint of %d bytes", len(signed))
	}
	text, _, ok := strings.Cut(string(signed), "\n\n")
	text += "\n"
	if known != nil {
		n, err := note.Open(signed, known)
		if err != nil {
			return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
		}
		text = n.Text
	} else if !ok {
		return Checkpoint{}, fmt.Errorf("a checkpoint without signatures")
	}
	c, err := parseCheckpointText(text)
	c.Note = signed
	return c, err
}

// parseCheckpointText reads what C2SP tlog-checkpoint calls the body: the three
// lines there always are, written in the one way there is to write them, and
// those extensions that are ours.
func parseCheckpointText(text string) (c Checkpoint, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 || lines[0] == "" {
		return c, fmt.Errorf("a checkpoint has an origin, a size and a root, a line each")
	}
	c.Origin = lines[0]
	c.Size, err = strconv.ParseUint(lines[1], 10, 63)
	if err != nil || strconv.FormatUint(c.Size, 10) != lines[1] {
		return c, fmt.Errorf("the size of a checkpoint is %q", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return c, fmt.Errorf("the root of a checkpoint is %q", lines[2])
	}
	copy(c.Root[:], root)
	for _, line := range lines[3:] {
		switch name, value, _ := strings.Cut(line, " "); name {
		case format.ExtensionTime:
			if c.Time, err = time.Parse(format.TimeLayout, value); err != nil {
				return c, fmt.Errorf("the time of a checkpoint is %q", value)
			}
		case format.ExtensionNextKey:
			c.NextKey = value
		}
	}
	return c, nil
}
