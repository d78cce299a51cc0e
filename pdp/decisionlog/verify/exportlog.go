package verify

import (
	"errors"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
)

// mustProve says whether a record waits for its proof: in the form "proof" each does, and
// in a log that has one for any record each does.
func (x *exported) mustProve() bool {
	return x.proof >= 0 && (x.begin.Form == format.FormProof || x.proofs > 0)
}

func (x *exported) recordLine(line []byte) error {
	if x.mustProve() {
		return problem(Altered, x.proof, "its proof does not stand behind it")
	}
	if x.begin.Form == format.FormProof {
		return x.alone(line)
	}
	if x.log.tree.size >= x.signed.size {
		return problem(Altered, x.log.tree.size, "it stands behind the last one that the checkpoint covers")
	}
	x.proof, x.leafHash = x.log.tree.size, tlog.RecordHash(line)
	if err := x.log.record(line); err != nil {
		return x.swapped(err)
	}
	x.log.leaf(x.leafHash)
	return nil
}

// swapped looks one line further where a record stands too early: if its own predecessor
// follows, they are there in another order, and none is missing.
func (x *exported) swapped(err error) error {
	p := asProblem(err)
	if p.Code != Missing {
		return p
	}
	at := x.lines.number
	for {
		next, err := x.lines.next()
		if err == nil && isEnvelope(next) {
			if e, err := parseEnvelope(next); err == nil && e.Word == format.LineProof {
				continue
			}
		}
		if err == nil {
			x.log.inOtherOrder(p, next)
		}
		p.Line = at
		return p
	}
}

// alone takes a record of the form "proof", where others are not there at all.
func (x *exported) alone(line []byte) error {
	r, err := x.log.scanner.record(line)
	if err != nil {
		return problem(Altered, -1, "%v", err)
	}
	if r.sequence < x.log.tree.size || r.sequence >= x.signed.size {
		return problem(Altered, r.sequence, "it stands out of order, or its checkpoint does not cover it")
	}
	x.log.tree.size = r.sequence // only counted, not computed: there are no leaves
	if err := x.log.record(line); err != nil {
		return err
	}
	x.proof, x.leafHash, x.log.tree.size = r.sequence, tlog.RecordHash(line), r.sequence+1
	return nil
}

// proofLine checks the inclusion proof of the record before it.
func (x *exported) proofLine(e *envelope) error {
	if x.proof < 0 || e.Sequence == nil || *e.Sequence != x.proof {
		return problem(Altered, x.proof, "a proof that is not of the record before it")
	}
	if err := tlog.CheckRecord(e.Hashes, x.signed.size, x.signed.root, x.proof, x.leafHash); err != nil {
		return problem(Altered, x.proof, "it is not in the log that its checkpoint was signed for: %v", err)
	}
	if x.begin.Form == format.FormLog && x.proofs+1 != x.log.report.Records {
		return problem(Altered, x.proof, "it has a proof, and one before it has none")
	}
	x.proof = -1
	x.proofs++
	return nil
}

// leaves takes the hashes of records that are not there.
func (x *exported) leaves(e *envelope) error {
	x.proof = -1
	switch {
	case x.begin.Form != format.FormLog || e.First == nil || len(e.Hashes) == 0 || len(e.Hashes) > format.MaxHashes:
		return problem(Altered, x.log.tree.size, "a line of hashes that is none")
	case *e.First > x.log.tree.size:
		return problem(Missing, x.log.tree.size, "hashes from %d stand in its place", *e.First)
	case *e.First < x.log.tree.size || *e.First+int64(len(e.Hashes)) > x.signed.size:
		return problem(Altered, x.log.tree.size, "hashes from %d stand in its place", *e.First)
	case e.Why == format.WhyFiltered && x.begin.Filter == nil:
		return problem(Missing, x.log.tree.size, "it was left out, of an export without a filter")
	case e.Why != format.WhyFiltered && e.Why != format.WhyRedacted && e.Why != format.WhyRetired:
		return problem(Altered, x.log.tree.size, "%.20q is no reason for a hash", e.Why)
	}
	for _, hash := range e.Hashes {
		if err := x.hashOnly(hash, e.Why); err != nil {
			return err
		}
	}
	return nil
}

// hashOnly takes one of them. With a filter it is not known whether the record that
// explains it was left out too, so nothing is asked and nothing is claimed. A filter leaves
// no record of a batch out that another inherits from; but a reader of some tenants only does
// not see a redaction.
func (x *exported) hashOnly(hash tlog.Hash, why string) error {
	if x.begin.Filter == nil {
		return x.log.missing(hash)
	}
	x.log.batches.gone = x.log.batches.gone || why != format.WhyFiltered || x.ofTenants
	x.log.runs.lost()
	x.log.report.Skipped++
	x.log.leaf(hash)
	return nil
}

// close holds all leaves against the checkpoint.
func (x *exported) close() error {
	if x.begin.Form == format.FormProof {
		return x.closeProof()
	}
	if root := x.log.tree.root(); root != x.signed.root {
		return problem(Altered, -1, "a record or a hash is not what was signed: the checkpoint's root is %v, that of the export %v", x.signed.root, root)
	}
	x.log.sign(x.signed)
	err := x.log.finish()
	if x.lines.handed == nil {
		x.log.absent(x.signed.origin)
	}
	if x.begin.Filter != nil {
		all := x.log.report.Proved
		x.log.report.Proved = nil
		x.log.report.proved("each of the %d records here is in the log, at its place among the %d that the checkpoint covers", x.log.report.Records, x.log.report.Size)
		x.log.report.doubt("of the %d records that were left out nothing is known but their hashes: whether they are what the filter was to leave out, too", x.log.report.Skipped)
		if x.log.asksWitnesses() {
			x.log.report.Proved = append(x.log.report.Proved, all[len(all)-1])
		}
	}
	return err
}

func (x *exported) closeProof() error {
	if x.log.report.Records == 0 {
		return problem(Missing, -1, "there is no record in it")
	}
	x.log.sign(x.signed)
	x.log.report.Key = x.log.keys.inForce.text
	x.log.holds(x.signed.text)
	if err := x.log.quorum(); err != nil {
		return err
	}
	x.log.report.proved("each of the %d records here is in the log, at its place among the %d that the checkpoint covers", x.log.report.Records, x.log.report.Size)
	x.log.witnessed()
	x.log.report.doubt("anything about the records that are not here")
	return errors.Join(x.related(), x.log.late)
}
