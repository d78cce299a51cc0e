package doctor

import (
	"context"
	"errors"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/witness"
)

// witnessPatience is how long the doctor waits for all witnesses.
const witnessPatience = 5 * time.Second

// checkpointsEvery is how old the newest checkpoint of a running server becomes.
const checkpointsEvery = time.Minute

// witnesses reads the files about them, with or without a running server, and asks whether each knows the log.
func (x *exam) witnesses() {
	const check, page = "witnesses", "see pdp/decisionlog/WITNESSES.md"
	c := x.Config.DecisionLog.Witnesses
	if x.reader == nil || c == nil {
		return
	}
	policy, err := c.Policy()
	if err != nil {
		x.Bites(check, "mend the policy file", "%v", err)
		return
	}
	switch forked, err := witness.Conflict(x.reader, x.data); {
	case err != nil:
		x.Bites(check, page, "%v", err)
	case forked:
		x.Bites(check, page+", and keep the file", "the log forked, and nothing is submitted any more: %s is a checkpoint that bears its signature and is not of it", format.ConflictFile)
		return
	}
	suspects, err := witness.Suspects(x.data)
	if err != nil {
		x.Bites(check, "remove "+format.SuspectsFile+" below the data directory: they are asked again", "%v", err)
	}
	for _, s := range suspects {
		x.Bites(check, page, "%s is left out since %s: %s", s.Witness, s.Since.UTC().Format(time.RFC3339), s)
	}
	last, err := x.reader.Witnessed()
	if errors.Is(err, segment.ErrForked) && x.reader.Partial() {
		err = nil // it covers records that only the running server can read, and that one looked
	}
	if err == nil {
		err = witness.Enough(policy, last.Note)
	}
	switch old := x.now().Sub(last.Time); {
	case errors.Is(err, segment.ErrNotFound):
		x.Bites(check, "have each witness add the key that log key prints, and start the server", "no quorum has cosigned the log yet")
	case err != nil:
		x.Bites(check, page, "the checkpoint that a quorum cosigned last does not count: %v", err)
	case old > c.Patience+checkpointsEvery && x.reader.Partial():
		x.Bites(check, "see the server's log, and to the witnesses below", "the quorum is missing: the last checkpoint that one cosigned is of %s", last.Time.UTC().Format(time.RFC3339))
	default:
		x.OK(check, "a quorum cosigned %d records, of %s", last.Size, last.Time.UTC().Format(time.RFC3339))
	}
	if err != nil {
		last, err = x.reader.LastCheckpoint()
	}
	if err != nil {
		return // nothing can be submitted
	}
	ctx, cancel := context.WithTimeout(x.ctx, witnessPatience)
	defer cancel()
	for _, one := range witness.Reach(ctx, policy, byKeyInForce(last)) {
		if one.Outcome == witness.Cosigned {
			x.OK(check, "%s knows the log", one.Witness)
		} else {
			x.Bites(check, "see to the witness, or to its line in the policy", "%s: %s", one.Witness, one.Detail)
		}
	}
}

// byKeyInForce leaves out the old key's signature of a checkpoint that signs a new key in: witnesses know the old key.
func byKeyInForce(c segment.Checkpoint) []byte {
	key, err := note.NewVerifier(c.NextKey)
	if err != nil {
		return c.Note // it signs none in
	}
	n, err := note.Open(c.Note, note.VerifierList(key))
	if err != nil {
		return c.Note
	}
	n.UnverifiedSigs = nil
	signed, err := note.Sign(n)
	if err != nil {
		return c.Note
	}
	return signed
}
