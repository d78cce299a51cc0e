package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/decisionlog/c2sp"
)

// Witnessed is the part of a log that the quorum of a policy cosigned.
type Witnessed struct {
	Size     int64      `json:"size"` // the records below it
	Cosigned []Cosigned `json:"cosigned"`
}

// Cosigned says when a witness cosigned a checkpoint.
type Cosigned struct {
	Witness string    `json:"witness"` // its name in the policy
	At      time.Time `json:"at"`
}

// String lists the witnesses.
func (w *Witnessed) String() string {
	all := make([]string, len(w.Cosigned))
	for i, one := range w.Cosigned {
		all[i] = fmt.Sprintf("%s at %s", one.Witness, one.At.UTC().Format(time.RFC3339))
	}
	return strings.Join(all, ", ")
}

// holds notes a checkpoint that is of the log. The quorum may have cosigned it.
func (c *checker) holds(checkpoint string) { c.holding = append(c.holding, checkpoint) }

// quorum looks for the longest checkpoint that the quorum of the policy cosigned, among those that are of the log.
func (c *checker) quorum() error {
	p, best := c.options.Policy, (*Witnessed)(nil)
	if p == nil {
		return nil
	}
	unknown, most := error(nil), 0
	for _, text := range c.holding {
		opened, err := p.Open([]byte(text))
		if errors.Is(err, c2sp.ErrOtherLog) && !errors.As(err, new(*note.InvalidSignatureError)) {
			unknown = err // a key that an older one signed in
			continue
		}
		if err != nil {
			return problem(Altered, -1, "%v", err)
		}
		signed, err := parseCheckpoint(opened.Text)
		if err != nil {
			return err
		}
		most = max(most, len(opened.Cosigned))
		if !p.Quorum(func(label string) bool { _, did := opened.Cosigned[label]; return did }) || best != nil && best.Size >= signed.size {
			continue
		}
		best = &Witnessed{Size: signed.size, Cosigned: []Cosigned{}}
		for label, at := range opened.Cosigned {
			best.Cosigned = append(best.Cosigned, Cosigned{label, at})
		}
		slices.SortFunc(best.Cosigned, func(a, b Cosigned) int { return strings.Compare(a.Witness, b.Witness) })
	}
	switch {
	case best == nil && unknown != nil:
		return problem(OtherKey, -1, "%v", unknown)
	case best == nil:
		return problem(Unwitnessed, -1, "no checkpoint has the quorum %s of the policy: at most %d of its %d witnesses cosigned one", p.QuorumName, most, len(p.Witnesses))
	}
	c.report.Witnessed = best
	return nil
}

// asksWitnesses reports whether the quorum of the policy is of witnesses, and cosigned the log.
func (c *checker) asksWitnesses() bool {
	return c.report.Witnessed != nil && c.options.Policy.QuorumName != c2sp.None
}

// witnessed reports what the quorum proves, and what it does not.
func (c *checker) witnessed() {
	r := &c.report
	if !c.asksWitnesses() {
		if r.Witnessed != nil {
			r.doubt("another log, shown to others under the same name: the policy asks no witness")
		}
		return
	}
	covered := min(r.Witnessed.Size, r.Size)
	r.proved("the quorum of the policy cosigned the first %d records: %v", covered, r.Witnessed)
	if covered < r.Size {
		r.doubt("that others were shown other records from record %d on: the quorum cosigned none of the last %d", covered, r.Size-covered)
	}
}
