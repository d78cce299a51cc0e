package verify

import (
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/c2sp"
)

// Proof verifies a proof in the form of C2SP tlog-proof, and that it is of a line.
func Proof(line, proof []byte, o Options) Report {
	return run(o, func(c *checker) error { return c.proof(line, proof) })
}

// proof is an export of one record, in another form. Its extra is passed over: nothing proves that.
func (c *checker) proof(line, text []byte) error {
	p, err := c2sp.ParseProof(text)
	if err != nil {
		return problem(Unreadable, -1, "this is no tlog-proof: %v", err)
	}
	if len(c.keys.given) == 0 {
		return problem(Usage, -1, "a tlog-proof has no key in it: give a policy, or the log's key")
	}
	x := exported{log: c}
	if x.signed, err = x.signature(string(p.Checkpoint), nil); err != nil {
		return err
	}
	if err := tlog.CheckRecord(p.Hashes, x.signed.size, x.signed.root, p.Index, tlog.RecordHash(line)); err != nil {
		return problem(Altered, p.Index, "the line is not in the log that the proof's checkpoint was signed for: %v", err)
	}
	c.report.Records, c.report.checkpoints = 1, 1
	return x.closeProof()
}
