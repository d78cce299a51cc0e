// Package verify says whether a decision log is the one that was signed. Call [Directory] on a
// data directory, [Export] on an exported file, or [Proof] on one record with its proof.
//
// It is a stranger to the writer: of package decisionlog it uses constants only, so that
// a mistake there is not made here again, and all that it reads may be hostile. It
// reads in memory that does not grow with the log, follows no length unchecked, and turns
// whatever else goes wrong into a [Report] with the code Unreadable.
//
// The proof is bounded by the possession of keys and copies. Lines, order and number follow from the
// Merkle root that a checkpoint signs. That the signature is the right one's, follows only
// from a key that came another way ([Options].Key). That the log was not cut, put back to
// an older copy, or signed anew with a stolen key, follows only from a checkpoint
// that was kept elsewhere (Checkpoint), or that witnesses cosigned, of which enough are honest (Policy). The report says
// which of these were not excluded.
//
// The package refuses to repair, and to trust anything for standing in the log itself.
package verify

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Options are facts that the caller knows from elsewhere.
type Options struct {
	// Key is the log's verifier key, as `log key` prints it; of several, one a line, each
	// is trusted. Without it the key that stands in the log is used, and proves less.
	Key string
	// Checkpoint is a signed checkpoint of this log that was kept elsewhere.
	Checkpoint string
	// Policy is in place of Key. Each log of it is trusted, and its quorum of witnesses must have cosigned a checkpoint.
	Policy *Policy
	// Served is the checkpoint that a server served before it was asked for the export, with the lines of witnesses.
	Served string
	// Strict has records that nothing proves to be the service's be a problem, with the code Unsigned.
	Strict bool
	// Record, where set, is called with each record in order, of a merge in that of the file. A record
	// is proved only once the report is there, is Verified, and its Size is above the sequence. The
	// line is valid until the call returns.
	Record func(sequence int64, line []byte)
}

// Directory verifies the log in a data directory. Where a server is running on it,
// the active segment is passed over.
func Directory(data string, o Options) Report {
	return run(o, func(c *checker) error { return c.readDirectory(data) })
}

// Export verifies a file that `log export`, `log prove` or `log consistency` wrote.
func Export(r io.Reader, o Options) Report {
	return run(o, func(c *checker) error { return c.export(r) })
}

// run is the one place where an error becomes a report.
func run(o Options, read func(*checker) error) (report Report) {
	c := &checker{options: o, scanner: newScanner(), digests: map[int64]map[string]bool{}, runs: runs{bundles: map[string]bool{}}}
	defer func() {
		if p := recover(); p != nil {
			c.fail(problem(Unreadable, -1, "verify itself failed, which it should on no input: %v", p))
		}
		report = c.report
	}()
	err := c.known()
	if err == nil {
		err = read(c)
	}
	if err == nil {
		err = c.late
	}
	if err == nil {
		err = c.strict()
	}
	if err != nil {
		c.fail(asProblem(err))
	}
	return c.report
}

// known reads the options, before anything that is not trusted.
func (c *checker) known() error {
	c.report.KeyGiven = strings.TrimSpace(c.options.Key) != "" || c.options.Policy != nil
	if c.options.Policy != nil {
		for _, log := range c.options.Policy.Logs {
			c.keys.given = append(c.keys.given, key{log.Verifier, log.Text})
		}
		if len(c.keys.given) == 0 {
			return problem(Usage, -1, "the policy names no log: add the line that `log key --policy` prints")
		}
	}
	for line := range strings.Lines(c.options.Key) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		v, err := note.NewVerifier(line)
		if err != nil {
			return problem(Usage, -1, "the key given is no verifier key: %v; take what `log key` prints", err)
		}
		c.keys.given = append(c.keys.given, key{v, line})
	}
	if c.options.Served != "" {
		c.beside = append(c.beside, keep("the checkpoint that the server serves", "", c.options.Served))
	}
	if c.options.Checkpoint == "" {
		return nil
	}
	if c.outside = keep("the checkpoint given", "", c.options.Checkpoint); c.outside.bad != nil {
		return problem(Usage, -1, "the checkpoint given is none: %v; take what `log checkpoint` prints", c.outside.bad)
	}
	return nil
}

// fail makes the report one of a problem. A proof before it is not claimed: it
// would be of a log that is not the one that was signed.
func (c *checker) fail(p *Problem) {
	if p.Code == Verified {
		p = problem(Unreadable, -1, "%v", fmt.Errorf("a problem without a code: %w", p))
	}
	p.Try = advice[p.Code]
	c.report.Code, c.report.Exit, c.report.Problem, c.report.Proved = p.Code, int(p.Code), p, nil
}
