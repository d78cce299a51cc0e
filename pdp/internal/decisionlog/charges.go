package decisionlog

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
)

// charges say to which accounts the records of one segment belong: for each account where its
// first record is, and what all its records weigh. They are kept in the segment, with each
// checkpoint; what is above the last checkpoint is read from the records. No name stands
// there but in the records themselves, so that no name is left when the records go.
type charges struct {
	byName map[string]*charge
	weight int64
	dirty  []*charge // since the last checkpoint, in the order that they became it
}

type charge struct {
	first  uint64
	whose  byte
	weight int64
	dirty  bool
}

// Whose an account is, relative to the caller of its first record.
const (
	ofCaller  byte = iota // the caller's, or no caller's
	ofIssuer              // subjects of the caller's issuer that have no account of their own
	ofOthers              // all other callers that have no account of their own
	ofPerson              // the person for whom the caller asks in its first record
	ofPersons             // persons for whom the caller asks that have no account of their own
)

func newCharges() *charges { return &charges{byName: map[string]*charge{}} }

// addRecords counts records toward an account. first is the sequence of the first of them.
func (c *charges) addRecords(name string, first uint64, weight int64) {
	one := c.byName[name]
	if one == nil {
		one = &charge{first: first}
		switch {
		case name == others:
			one.whose = ofOthers
		case strings.HasSuffix(name, ofPersonsMark+Anyone):
			one.whose = ofPersons
		case strings.Contains(name, ofPersonsMark):
			one.whose = ofPerson
		case name != "" && issuerOf(name)+"#" == name:
			one.whose = ofIssuer
		}
		c.byName[name] = one
	}
	one.weight += weight
	c.weight += weight
	if !one.dirty {
		one.dirty = true
		c.dirty = append(c.dirty, one)
	}
}

// putChanged writes the charges that changed since they were last written.
func (c *charges) putChanged(tx *bbolt.Tx) error {
	if len(c.dirty) == 0 {
		return nil
	}
	b, err := tx.CreateBucketIfNotExists([]byte(format.BucketCharges))
	if err != nil {
		return err
	}
	for _, one := range c.dirty {
		if err := b.Put(append(segment.EncodeNumber(one.first), one.whose), segment.EncodeNumber(uint64(one.weight))); err != nil {
			return err
		}
		one.dirty = false
	}
	c.dirty = c.dirty[:0]
	return nil
}

// readCharges reads the charges that a segment stores. A charge that was edited, or whose first record
// was redacted, counts toward no caller, but still toward all together.
func readCharges(tx *bbolt.Tx) *charges {
	c := newCharges()
	b := tx.Bucket([]byte(format.BucketCharges))
	if b == nil {
		return c
	}
	records := tx.Bucket([]byte(format.BucketRecords))
	_ = b.ForEach(func(k, v []byte) error {
		weight, isNumber := segment.DecodeNumber(v)
		if len(k) != 9 || !isNumber || weight >= 1<<48 {
			return nil
		}
		first, _ := segment.DecodeNumber(k[:8])
		name := accountOfLine(records.Get(k[:8]), k[8])
		if c.byName[name] == nil {
			c.byName[name] = &charge{first: first, whose: k[8]}
		}
		c.byName[name].weight += int64(weight)
		c.weight += int64(weight)
		return nil
	})
	return c
}

// accountOfLine returns the account of a line's caller, or of the requester of the approval that the
// line is about.
func accountOfLine(line []byte, whose byte) string {
	var s struct {
		Kind    string         `json:"kind"`
		Caller  string         `json:"caller"`
		Details jsontext.Value `json:"details"`
		Request struct {
			Subject evaluation.Ref `json:"subject"`
			Context struct {
				Person jsontext.Value `json:"person"`
			} `json:"context"`
		} `json:"request"`
	}
	if line == nil || json.Unmarshal(line, &s) != nil {
		return ""
	}
	if s.Kind == format.KindApproval && s.Caller == "" {
		var of struct {
			Requester string `json:"requester"`
		}
		_ = json.Unmarshal(s.Details, &of) // it is no caller's then
		s.Caller = of.Requester
	}
	switch whose {
	case ofIssuer:
		return issuerOf(s.Caller) + "#"
	case ofOthers:
		return others
	case ofPersons:
		return ForPerson(s.Caller, Anyone)
	case ofPerson:
		return ForPerson(s.Caller, PersonIn(personsIn(s.Request.Context.Person), s.Request.Subject))
	}
	return s.Caller
}

// personsIn returns the persons that a context names, as [evaluation.Request.Person] does.
func personsIn(v jsontext.Value) string {
	var one string
	var several []string
	if json.Unmarshal(v, &one) == nil {
		return one
	}
	_ = json.Unmarshal(v, &several) // then it names nobody
	return strings.Join(several, " ")
}

// readActiveCharges reads the charges of the active segment, and adds its records after the last checkpoint.
func readActiveCharges(tx *bbolt.Tx, first, checkpointed, size uint64) *charges {
	c, from := readCharges(tx), max(first, checkpointed)
	records := tx.Bucket([]byte(format.BucketRecords))
	for ; from < size; from++ {
		line := records.Get(segment.EncodeNumber(from))
		c.addRecords(accountOfLine(line, ofCaller), from, int64(len(line))+lineWeight)
	}
	return c
}

// toStretch divides the content of a sealed segment among the accounts.
func (c *charges) toStretch(until time.Time, content int64) stretch {
	s, each := stretch{begun: until, until: until, content: content, byName: map[string]int64{}}, price(content, c.weight)
	for name, one := range c.byName {
		if name == "" {
			continue
		}
		bytes := int64(float64(one.weight) * each)
		s.byName[name] += bytes
		for group := range groupsOf(name) {
			s.byName[group] += bytes
		}
	}
	return s
}

// weightOf returns the weight of entries.
func weightOf(entries []prepared) (weight int64) {
	for i := range entries {
		weight += int64(len(entries[i].body)+len(entries[i].id)) + lineWeight
	}
	return weight
}

// readStretches reads the sealed segments that retention may not drop yet, oldest first. A segment that
// cannot be read counts with its size toward no caller, so that the log goes on.
func readStretches(r *segment.Reader, keep Retention, now time.Time) (out []stretch) {
	all := r.SegmentFiles()
	for i := len(all) - 2; i >= 0 && keep.LeastAge > 0; i-- {
		until, err := begunAt(r, all[i+1].First)
		if errors.Is(err, segment.ErrGone) || err == nil && until.Add(keep.LeastAge).Before(now) {
			break
		}
		if err != nil {
			until = now
		}
		s := stretch{begun: until, until: until, content: all[i].Size, byName: map[string]int64{}}
		_ = r.View(all[i], func(tx *bbolt.Tx) error {
			s = readCharges(tx).toStretch(until, contentBytes(tx.Size(), all[i+1].First-all[i].First))
			return nil
		})
		out = append(out, s)
	}
	slices.Reverse(out)
	return out
}
