package doctor

import (
	"context"
	"errors"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/witness"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
)

// witnessPatience is how long the doctor waits for all witnesses.
const witnessPatience = 5 * time.Second

// checkpointsEvery is how old the newest checkpoint of a running server becomes.
const checkpointsEvery = time.Minute

// witnesses are those of the log.
type witnesses struct {
	*server.WitnessesConfig // nil without any
	log                     *decisionLog
	now                     time.Time
}

// Findings reads the files about them, with or without a running server, and asks whether each knows the log.
func (w witnesses) Findings(ctx context.Context) (found finding.List) {
	const check, page = "witnesses", "see pdp/decisionlog/WITNESSES.md"
	log := w.log.reader
	if log == nil || w.WitnessesConfig == nil {
		return nil
	}
	policy, err := w.Policy()
	if err != nil {
		found.Bites(check, "mend the policy file", "%v", err)
		return found
	}
	switch forked, err := witness.Conflict(log, w.log.data.path); {
	case err != nil:
		found.Bites(check, page, "%v", err)
	case forked:
		found.Bites(check, page+", and keep the file", "the log forked, and nothing is submitted any more: %s is a checkpoint that bears its signature and is not of it", format.ConflictFile)
		return found
	}
	suspects, err := witness.Suspects(w.log.data.path)
	if err != nil {
		found.Bites(check, "remove "+format.SuspectsFile+" below the data directory: they are asked again", "%v", err)
	}
	for _, s := range suspects {
		found.Bites(check, page, "%s is left out since %s: %s", s.Witness, s.Since.UTC().Format(time.RFC3339), s)
	}
	last, err := log.Witnessed()
	if errors.Is(err, segment.ErrForked) && log.Partial() {
		err = nil // it covers records that only the running server can read, and that one looked
	}
	if err == nil {
		err = witness.Enough(policy, last.Note)
	}
	switch old := w.now.Sub(last.Time); {
	case errors.Is(err, segment.ErrNotFound):
		found.Bites(check, "have each witness add the key that log key prints, and start the server", "no quorum has cosigned the log yet")
	case err != nil:
		found.Bites(check, page, "the checkpoint that a quorum cosigned last does not count: %v", err)
	case old > w.Patience+checkpointsEvery && log.Partial():
		found.Bites(check, "see the server's log, and to the witnesses below", "the quorum is missing: the last checkpoint that one cosigned is of %s", last.Time.UTC().Format(time.RFC3339))
	default:
		found.OK(check, "a quorum cosigned %d records, of %s", last.Size, last.Time.UTC().Format(time.RFC3339))
	}
	if err != nil {
		last, err = log.LastCheckpoint()
	}
	if err != nil {
		return found // nothing can be submitted
	}
	ctx, cancel := context.WithTimeout(ctx, witnessPatience)
	defer cancel()
	for _, one := range witness.Reach(ctx, policy, byKeyInForce(last)) {
		if one.Outcome == witness.Cosigned {
			found.OK(check, "%s knows the log", one.Witness)
		} else {
			found.Bites(check, "see to the witness, or to its line in the policy", "%s: %s", one.Witness, one.Detail)
		}
	}
	return found
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
