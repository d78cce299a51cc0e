package verify

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/c2sp"
)

// Policy says which checkpoints count, in the form of c2sp.org/tlog-policy: each is signed by one of some logs, and cosigned
// by enough witnesses. [ParsePolicy] reads one.
type Policy = c2sp.Policy

// ParsePolicy reads a policy, as policy-service log key --policy prints it.
func ParsePolicy(text []byte) (*Policy, error) { return c2sp.ParsePolicy(text) }

// Witnessed is the part of a log that the quorum of a policy cosigned.
type Witnessed struct {
	Size     int64                `json:"size"`     // the records below it
	Cosigned map[string]time.Time `json:"cosigned"` // by the names that the policy gives to witnesses
}

// String lists the witnesses.
func (w *Witnessed) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(w.Cosigned)) {
		all = append(all, name+" at "+w.Cosigned[name].UTC().Format(time.RFC3339))
	}
	return strings.Join(all, ", ")
}

// holds notes a checkpoint that is of the log. The quorum may have cosigned it.
func (c *checker) holds(checkpoint string) { c.holding = append(c.holding, checkpoint) }

// quorum looks for the longest checkpoint that the quorum of the policy cosigned, among those that are of the log.
func (c *checker) quorum() error {
	if c.options.Policy == nil {
		return nil
	}
	var otherKey, tooFew error
	most := -1
	for _, text := range c.holding {
		opened, err := c.options.Policy.Check([]byte(text))
		switch {
		case errors.As(err, new(*note.InvalidSignatureError)):
			return problem(Altered, -1, "%v", err)
		case errors.Is(err, c2sp.ErrQuorum):
			if n := len(opened.Cosigned); n > most {
				most, tooFew = n, err
			}
			continue
		case err != nil: // the key may be one that another signed in
			otherKey = err
			continue
		}
		signed, err := parseCheckpoint(opened.Text)
		if err != nil {
			return err
		}
		if signed.size == 0 && c.report.Size > 0 { // all histories begin so
			most, tooFew = len(opened.Cosigned), errors.New("the quorum of the policy cosigned no record")
			continue
		}
		if best := c.report.Witnessed; best == nil || signed.size > best.Size {
			c.report.Witnessed = &Witnessed{signed.size, opened.Cosigned}
		}
	}
	switch {
	case c.report.Witnessed != nil:
		return nil
	case otherKey != nil:
		return problem(OtherKey, -1, "%v", otherKey)
	}
	return problem(Unwitnessed, -1, "%v", tooFew)
}

// asksWitnesses reports whether the quorum of the policy is of witnesses, and cosigned the log.
func (c *checker) asksWitnesses() bool {
	return c.report.Witnessed != nil && c.options.Policy.QuorumName != c2sp.None
}

// witnessed reports how far the word of the quorum reaches.
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
