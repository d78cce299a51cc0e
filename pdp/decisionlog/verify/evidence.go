package verify

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/plainfile"
)

// outside is a checkpoint that the leaves are held against, and that does not stand among them.
type outside struct {
	checkpoint
	name    string     // in a sentence
	file    string     // "" if it came from elsewhere
	bad     error      // it is no checkpoint
	reached *tlog.Hash // the root of the tree when it had the size of the checkpoint
}

// keep makes one of a text, whose signature is checked later.
func keep(name, file, text string) *outside {
	o := &outside{name: name, file: file}
	o.checkpoint, o.bad = unverifiedCheckpoint(text)
	return o
}

// reach notes the root of the tree once it has the size of the checkpoint.
func (o *outside) reach(tree *frontier) {
	if o != nil && o.size == tree.size {
		root := tree.root()
		o.reached = &root
	}
}

// Beside the segments of a data directory stand files about witnesses. Nothing covers them, and each may be anybody's. A
// checkpoint in them counts if a key of the log signed it. Any other defect of them is named.

// maxEvidence bounds such a file.
const maxEvidence = 64 << 10

// evidence reads these files. It comes before the leaves, which are held against the checkpoints.
func (c *checker) evidence(data string) {
	read := func(name string) (file string, text []byte, err error) {
		file = filepath.Join(data, filepath.FromSlash(name))
		text, err = plainfile.Read(file, maxEvidence)
		return file, text, err
	}
	for _, name := range []string{format.WitnessedFile, format.ConflictFile} {
		file, text, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		o := keep("the checkpoint in "+name, file, string(text))
		o.bad = cmp.Or(err, o.bad)
		if c.beside = append(c.beside, o); name == format.ConflictFile {
			c.conflict = o
		}
	}
	_, text, err := read(format.SuspectsFile)
	if err == nil {
		err = c.suspect(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.suspects = append(c.suspects, fmt.Sprintf("another history of this log, which a witness has: %s cannot be read: %v", format.SuspectsFile, err))
	}
}

// suspect reads the claims of witnesses that this log is not the one they know.
func (c *checker) suspect(text []byte) error {
	var all []struct {
		Witness string    `json:"witness"`
		Size    uint64    `json:"size"` // 0 if it refused a proof
		Ours    uint64    `json:"ours"`
		Status  int       `json:"status"`
		Since   time.Time `json:"since"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for _, s := range all[:min(len(all), maxUnknown)] {
		said := fmt.Sprintf("said that it cosigned %d records of this log; here were %d", s.Size, s.Ours)
		if s.Size == 0 {
			said = fmt.Sprintf("refused (%d) the proof that the %d records here go on from what it cosigned", s.Status, s.Ours)
		}
		c.suspects = append(c.suspects, fmt.Sprintf("another history of this log: witness %.100s at %s %s", s.Witness, s.Since.UTC().Format(time.RFC3339), said))
	}
	return nil
}

// compare holds the log against all checkpoints from outside.
func (c *checker) compare() error {
	if c.outside != nil {
		if err := c.against(c.outside); err != nil {
			return err
		}
	}
	for _, o := range c.beside {
		err := o.bad
		if err == nil {
			err = c.against(o)
		}
		ofOurs := o.file != "" && (o == c.conflict || c.options.Policy == nil) // and no quorum is sought in it
		switch code := asProblem(err).Code; {
		case err == nil && o == c.conflict:
			c.report.doubt("that a witness has another history: %s is kept as evidence, though it is of this log", o.name)
		case err == nil:
		case ofOurs && code == Usage && o != c.conflict: // it is of records that a running server holds
		case ofOurs && code != Usage && code != Forked && code != Truncated:
			c.report.doubt("that a witness has another history: %s is none that this log signed: %v", o.name, err)
		default:
			return inFile(err, o.file)
		}
	}
	return nil
}

// against holds the log against one of them.
func (c *checker) against(o *outside) error {
	keys := &c.keys
	if o != c.outside {
		keys = c.keys.ofExport()
	}
	signed, by, err := keys.any(o.text)
	if err == nil && signed.origin != c.report.Origin {
		err = problem(OtherKey, -1, "it is of the log %s", signed.origin)
	}
	if err != nil {
		p := asProblem(err)
		p.What = o.name + ": " + p.What
		return p
	}
	switch {
	case signed.size > c.tree.size && c.held:
		// Not truncated, as far as anybody can see, and not verified either.
		return problem(Usage, -1, "%s covers %d records, and beside a running server only %d were to be read: give an older one, ask the server itself with --server, or stop it",
			o.name, signed.size, c.tree.size)
	case signed.size > c.tree.size:
		p := problem(Truncated, c.tree.size, "it and all up to record %d are not there: %s covers %d records, the log has %d",
			signed.size-1, o.name, signed.size, c.tree.size)
		if c.report.Live { // by the word of the export, which whoever cuts it writes
			p.What += "; the export says that it was made beside a running server: make it again with --server, or stop the server"
		}
		return p
	case signed.size > 0 && (o.reached == nil || *o.reached != signed.root):
		return problem(Forked, -1, "the first %d records are not those that %s was signed for", signed.size, o.name)
	case signed.size > c.report.Size && (o == c.outside || by.text == c.keys.inForce.text): // a key that was in force may be a thief's
		c.sign(signed) // it covers more than the log's own
		c.report.Unsigned = c.tree.size - c.report.Size
	}
	c.holds(o.text)
	return nil
}
