package verify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
)

// An exported is an export being read. Its one checkpoint stands at the beginning, and
// all that follows is held against it.
type exported struct {
	log     *checker
	lines   *lines
	begin   envelope
	signed  checkpoint
	digest  hash.Hash
	bundles bundles
	// proof is the record that the next line may, or must, be the proof of; -1 is none.
	proof    int64
	leafHash tlog.Hash
	proofs   int64
	// ofTenants says that it is for somebody who sees the records of some only.
	ofTenants bool
	ended     bool
}

// export verifies an exported file.
func (c *checker) export(r io.Reader) error {
	return c.lines(newLines(r, format.MaxLine))
}

func (c *checker) lines(l *lines) error {
	x := exported{log: c, lines: l, digest: sha256.New(), proof: -1}
	if err := x.read(); err != nil {
		p := asProblem(err)
		p.Line = cmp.Or(p.Line, x.lines.number)
		return p
	}
	return nil
}

func (x *exported) read() error {
	line, err := x.lines.next()
	if err != nil || !isEnvelope(line) {
		return problem(Unreadable, -1, "this is no export of a decision log")
	}
	if x.begin, err = parseEnvelope(line); err != nil {
		return err
	}
	if x.begin.Word == format.LineMerge && x.lines.handed == nil {
		return x.merge(line)
	}
	if x.begin.Format != format.ExportVersion {
		return problem(Unreadable, -1, "the export is of format %d, and this verifies format %d: a newer version made it; verify it with that version", x.begin.Format, format.ExportVersion)
	}
	if x.begin.Word == format.LineConsistency {
		return x.consistency()
	}
	if err := x.start(); err != nil {
		return err
	}
	for x.hash(line); !x.ended; x.hash(line) {
		line, err = x.lines.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errCutLine) {
			return problem(Truncated, x.log.tree.size, "the export ends before its last line")
		}
		if err != nil {
			return problem(Altered, x.log.tree.size, "%v", err)
		}
		if err := x.line(line); err != nil {
			return err
		}
	}
	if _, err := x.lines.next(); !errors.Is(err, io.EOF) {
		return problem(Altered, -1, "something follows the export's last line")
	}
	return x.close()
}

// hash takes a line into the digest, which is of all lines before the last.
func (x *exported) hash(line []byte) {
	_, _ = x.digest.Write(line)
	_, _ = x.digest.Write([]byte{'\n'})
}

// start checks the first line, with the signature that the rest hangs on.
func (x *exported) start() error {
	b := &x.begin
	if b.Word != format.LineBegin || b.Form != format.FormLog && b.Form != format.FormProof {
		return problem(Unreadable, -1, "this is no export of a decision log")
	}
	signed, err := x.signature(b.Checkpoint, b.Keys)
	if err != nil {
		return err
	}
	if b.Size == nil || signed.size != *b.Size || signed.origin != b.Origin {
		return problem(Altered, -1, "its first line is not of the log or the size that its checkpoint is of")
	}
	x.signed, x.log.report.checkpoints, x.log.report.Live = signed, 1, b.Live
	x.log.apart, x.ofTenants = b.Form == format.FormProof, b.ofTenants()
	if x.log.apart || b.Filter != nil {
		x.log.digests = nil // a redaction of another tenant may have made the file that is replaced
	}
	return nil
}

// maxKeys bounds the keys that an export may say it was signed with.
const maxKeys = 1000

// signature opens the export's checkpoint: with the key given, or one it was signed in
// by, or else, proving less, with the keys that stand in the export.
func (x *exported) signature(text string, standing []string) (checkpoint, error) {
	k := keyring{given: x.log.keys.given}
	if x.log.report.KeyGiven {
		k.past = append(x.log.keys.past, x.outsideNextKey()...)
	}
	if len(standing) > maxKeys {
		return checkpoint{}, problem(Unreadable, -1, "more than %d keys", maxKeys)
	}
	var others []key
	for _, text := range standing {
		v, err := note.NewVerifier(text)
		if err != nil {
			return checkpoint{}, problem(Altered, -1, "a key in it is no verifier key: %v", err)
		}
		others = append(others, key{v, text})
	}
	if !x.log.report.KeyGiven {
		k.past = others
	}
	signed, by, err := k.any(text)
	if err != nil {
		return checkpoint{}, err
	}
	if signed.origin != by.Name() {
		return checkpoint{}, problem(Altered, -1, "the checkpoint is of the log %s, and signed by that of %s", signed.origin, by.Name())
	}
	// The checkpoint from outside may be signed by an older key, once the asker himself says
	// which is the newest. Without that nothing here says that the one signed the other in.
	k.inForce, k.trusted, k.past, k.standing = by, true, []key{by}, others
	if x.log.report.KeyGiven {
		k.past = append(k.past, others...)
	}
	x.log.keys = k
	return signed, nil
}

// outsideNextKey is the key that the checkpoint from outside signs in, where one of the
// keys given signed it: an export has the last checkpoint only, not those that rotated keys.
func (x *exported) outsideNextKey() []key {
	if x.log.outside == nil || x.log.outside.extension(format.ExtensionNextKey) == "" {
		return nil
	}
	k := keyring{given: x.log.keys.given}
	for _, one := range k.given {
		k.inForce = one
		if _, err := k.open(x.log.outside.text); err == nil {
			return k.past
		}
	}
	return nil
}

// line takes any line but the first.
func (x *exported) line(line []byte) error {
	if !isEnvelope(line) {
		if err := x.bundles.whole(); err != nil {
			return err
		}
		return x.recordLine(line)
	}
	e, err := parseEnvelope(line)
	if err == nil && e.Word != format.LineFile && e.Word != format.LineBundle {
		err = x.bundles.whole()
	}
	if err != nil {
		return err
	}
	if x.mustProve() && e.Word != format.LineProof {
		return problem(Altered, x.proof, "its proof does not stand behind it")
	}
	switch e.Word {
	case format.LineProof:
		return x.proofLine(&e)
	case format.LineLeaves:
		return x.leaves(&e)
	case format.LineFile, format.LineBundle:
		x.proof = -1
		return x.bundles.take(&e)
	case format.LineEnd:
		return x.end(&e)
	}
	return problem(Altered, -1, "%.20q is no word of an export", e.Word)
}

// end checks the last line: that the export is whole, and was not changed by accident.
func (x *exported) end(e *envelope) error {
	x.ended = true
	if x.begin.Form == format.FormLog && x.log.tree.size < x.signed.size {
		return problem(Truncated, x.log.tree.size, "it and all up to record %d are not there, which the checkpoint covers", x.signed.size-1)
	}
	if e.Records == nil || *e.Records != x.log.report.Records || e.Size == nil || *e.Size != x.signed.size {
		return problem(Missing, x.log.tree.size, "the last line counts other records than there are")
	}
	if e.Digest != hex.EncodeToString(x.digest.Sum(nil)) {
		return problem(Altered, -1, "the export is not the file that was written: its digest differs")
	}
	if e.Witnessed == "" {
		return nil
	}
	return x.cosigned(e)
}

// cosigned checks that the checkpoint which witnesses cosigned is of the same log, whichever of the two covers more.
func (x *exported) cosigned(e *envelope) error {
	older, _, err := x.log.keys.ofExport().any(e.Witnessed)
	if err == nil && older.origin != x.signed.origin {
		err = problem(Altered, -1, "it is of the log %s", older.origin)
	}
	if newer := x.signed; err == nil {
		if older.size > newer.size {
			older, newer = newer, older
		}
		err = continues(older, newer, e.Hashes)
	}
	if err != nil {
		p := asProblem(err)
		p.What = "the checkpoint that witnesses cosigned: " + p.What
		return p
	}
	x.log.holds(e.Witnessed)
	return nil
}
