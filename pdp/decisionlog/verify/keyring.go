package verify

import (
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/format"
)

// A keyring knows which key is in force. A log's first key is believed only where it was
// given; each next one because the one before signed it in, with a next-key line of a
// checkpoint that both signed.
type keyring struct {
	given   []key
	inForce key
	past    []key // all that were in force, this one too
	trusted bool  // the key in force was given, or signed in by one that was
	// standing are keys that stand in an export, and that nothing here signed in.
	standing []key
}

type key struct {
	note.Verifier
	text string
}

// start puts the first key in force.
func (k *keyring) start(text string) error {
	v, err := note.NewVerifier(text)
	if err != nil {
		return problem(Unreadable, -1, "the log's key is no verifier key: %v", err)
	}
	k.follow(key{v, text})
	return nil
}

func (k *keyring) follow(next key) {
	k.inForce, k.past = next, append(k.past, next)
	k.trusted = k.trusted || len(k.given) == 0 ||
		slices.ContainsFunc(k.given, func(given key) bool { return given.text == next.text })
}

// open checks a checkpoint of the log against the key in force, and puts the next one in
// force where it signs one in.
func (k *keyring) open(text string) (checkpoint, error) {
	c, err := openCheckpoint(text, note.VerifierList(k.inForce))
	if err != nil {
		return c, err
	}
	if c.origin != k.inForce.Name() {
		return c, problem(Altered, -1, "the checkpoint is of the log %s, and not of %s", c.origin, k.inForce.Name())
	}
	nextKey := c.extension(format.ExtensionNextKey)
	if nextKey == "" {
		return c, nil
	}
	next, err := note.NewVerifier(nextKey)
	if err != nil || next.Name() != c.origin {
		return c, problem(Altered, -1, "the checkpoint signs in a key that is none of this log's")
	}
	// The new key signs too, so that nobody has a log vouched for by a key he does not hold.
	if _, err := openCheckpoint(text, note.VerifierList(next)); err != nil {
		return c, err
	}
	k.follow(key{next, nextKey})
	return c, nil
}

// any opens a checkpoint with whichever key of this log signed it, and says which.
func (k *keyring) any(text string) (c checkpoint, by key, err error) {
	err = problem(OtherKey, -1, "no key is known to check the checkpoint with: give the log's")
	for _, by = range append(append([]key{}, k.given...), k.past...) {
		if c, err = openCheckpoint(text, note.VerifierList(by)); err == nil || asProblem(err).Code != OtherKey {
			return c, by, err
		}
	}
	return c, by, err
}

// ofExport is the keyring for checkpoints that came with the log, which the tree is held against: a key that only stands
// in the export may have signed them before it was rotated.
func (k keyring) ofExport() *keyring {
	k.past = slices.Concat(k.past, k.standing)
	return &k
}

// extension is the value of an extension line, empty where there is none.
func (c checkpoint) extension(name string) string {
	for line := range strings.Lines(c.signed) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSuffix(value, "\n")
		}
	}
	return ""
}
