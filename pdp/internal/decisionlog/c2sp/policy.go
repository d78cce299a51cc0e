package c2sp

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Policy says which checkpoints count: tlog-policy. Each is signed by one of some logs, and cosigned by enough witnesses.
type Policy struct {
	Logs      []LogKey
	Witnesses []Witness

	// QuorumName is that of a witness or group, or [None].
	QuorumName string
	QuorumLine int // of the file, from 1
	groups     map[string]group
}

// LogKey is the key of a log. Its name is the log's origin.
type LogKey struct {
	note.Verifier
	Text string // as the file has it
	URL  string // "" for none
}

// Witness is a witness, by the label that the file gives it.
type Witness struct {
	note.Verifier
	Label, Text string
	URL         string // "" for none
	Line        int    // of the file, from 1
}

// group counts where so many of its members do.
type group struct {
	least   int
	members []string
}

// None is the quorum of a policy that asks no witness.
const None = "none"

// MaxPolicyBytes is how long the text of a policy may be.
const MaxPolicyBytes = 1 << 20

// The errors of [Policy.Check]. Their texts say more.
var (
	// ErrOtherLog: no log of the policy signed it.
	ErrOtherLog = errors.New("no log of the policy signed the checkpoint")
	// ErrQuorum: a log of the policy signed it, and too few witnesses.
	ErrQuorum = errors.New("too few witnesses of the policy cosigned the checkpoint")
)

// Opened is a checkpoint that was verified.
type Opened struct {
	Text string // without its signatures
	Log  LogKey
	// Cosigned has the time of each witness of the policy that cosigned it, by label.
	Cosigned map[string]time.Time
}

// Open verifies that a log of the policy signed a checkpoint. It does not ask for the quorum.
func (p *Policy) Open(signed []byte) (*Opened, error) {
	n, err := note.Open(signed, p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOtherLog, err)
	}
	o := &Opened{Text: n.Text, Cosigned: map[string]time.Time{}}
	origin, _, _ := strings.Cut(n.Text, "\n")
	for _, s := range n.Sigs {
		for _, l := range p.Logs {
			if is(l, s.Name, s.Hash) && s.Name == origin && o.Log.Verifier == nil {
				o.Log = l
			}
		}
		// The first one, as in Verifier: of one name, two may have been made to have one hash.
		if i := slices.IndexFunc(p.Witnesses, func(w Witness) bool { return is(w, s.Name, s.Hash) }); i >= 0 {
			if o.Cosigned[p.Witnesses[i].Label], err = CosignedAt(s); err != nil {
				return nil, err
			}
		}
	}
	if o.Log.Verifier == nil {
		return nil, fmt.Errorf("%w: it is of %.200q", ErrOtherLog, origin)
	}
	return o, nil
}

func is(v note.Verifier, name string, hash uint32) bool {
	return v.Name() == name && v.KeyHash() == hash
}

// Check verifies a checkpoint, and asks for the quorum.
func (p *Policy) Check(signed []byte) (*Opened, error) {
	o, err := p.Open(signed)
	if err != nil {
		return nil, err
	}
	if !p.Quorum(func(label string) bool { _, did := o.Cosigned[label]; return did }) {
		return o, fmt.Errorf("%w: %d of %d did, and the quorum is %s", ErrQuorum, len(o.Cosigned), len(p.Witnesses), p.QuorumName)
	}
	return o, nil
}

// Verifier implements [note.Verifiers] for the logs and the witnesses.
func (p *Policy) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, l := range p.Logs {
		if is(l, name, hash) {
			return l.Verifier, nil
		}
	}
	for _, w := range p.Witnesses {
		if is(w, name, hash) {
			return w.Verifier, nil
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}

// Quorum reports whether the witnesses that cosigned are enough.
func (p *Policy) Quorum(cosigned func(label string) bool) bool {
	return p.QuorumName == None || p.counts(p.QuorumName, cosigned)
}

// counts reports whether a witness or group counts. A group has only members that stand before it.
func (p *Policy) counts(name string, cosigned func(label string) bool) bool {
	g, ok := p.groups[name]
	if !ok {
		return cosigned(name)
	}
	n := 0
	for _, member := range g.members {
		if p.counts(member, cosigned) {
			n++
		}
	}
	return n >= g.least
}

// ParsePolicy reads a policy. An error names the line.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > MaxPolicyBytes {
		return nil, fmt.Errorf("it has %d bytes, and a policy has at most %d", len(text), MaxPolicyBytes)
	}
	r := policyReader{Policy: &Policy{groups: map[string]group{}}, labels: map[string]bool{}, keys: map[string]bool{}}
	for line := range strings.SplitSeq(string(text), "\n") {
		r.number++
		if err := r.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.number, err)
		}
	}
	if r.QuorumName == "" {
		return nil, errors.New("it has no line quorum: write quorum NAME, of a witness or group, or quorum none")
	}
	return r.Policy, nil
}

// policyReader reads the lines of a policy.
type policyReader struct {
	*Policy
	number int             // of the line that is read
	labels map[string]bool // of witnesses and groups; true for those that are a member already
	keys   map[string]bool // of logs and witnesses, with their types
}

func (r *policyReader) line(line string) error {
	if i := strings.IndexFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }); i >= 0 {
		return fmt.Errorf("it has the character %q", line[i])
	}
	fields := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return nil
	}
	switch word, rest := fields[0], fields[1:]; {
	case word == "log" && (len(rest) == 1 || len(rest) == 2):
		return r.log(rest)
	case word == "witness" && (len(rest) == 2 || len(rest) == 3):
		return r.witness(rest)
	case word == "group" && len(rest) >= 3:
		return r.group(rest[0], rest[1], rest[2:])
	case word == "quorum" && len(rest) == 1:
		return r.quorum(rest[0])
	}
	return errors.New("it is none of: log KEY [URL], witness NAME KEY [URL], group NAME all|any|NUMBER NAME…, quorum NAME|none")
}

func (r *policyReader) log(fields []string) error {
	v, err := note.NewVerifier(fields[0])
	if err != nil {
		return fmt.Errorf("the key of the log is none: %w", err)
	}
	if err := r.once(fields[0]); err != nil {
		return err
	}
	r.Logs = append(r.Logs, LogKey{v, fields[0], second(fields)})
	return nil
}

func (r *policyReader) witness(fields []string) error {
	v, err := NewCosigner(fields[1])
	if err != nil {
		return fmt.Errorf("the key of the witness %q: %w", fields[0], err)
	}
	if err := cmp.Or(r.label(fields[0]), r.once(fields[1])); err != nil {
		return err
	}
	r.Witnesses = append(r.Witnesses, Witness{v, fields[0], fields[1], second(fields[1:]), r.number})
	return nil
}

// second is the URL behind a key, if there is one.
func second(fields []string) string {
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// once refuses a key that stands there already, under any name.
func (r *policyReader) once(vkey string) error {
	encoded := strings.SplitN(vkey, "+", 3)[2]
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || r.keys[string(key)] {
		return errors.New("its key stands above already")
	}
	r.keys[string(key)] = true
	return nil
}

func (r *policyReader) label(name string) error {
	if _, taken := r.labels[name]; taken || name == None {
		return fmt.Errorf("the name %q is taken", name)
	}
	r.labels[name] = false
	return nil
}

func (r *policyReader) group(name, least string, members []string) error {
	g := group{members: slices.Clone(members)}
	switch least {
	case "any":
		g.least = 1
	case "all":
		g.least = len(members)
	default:
		g.least, _ = strconv.Atoi(least)
		if g.least < 1 || g.least > len(members) || strconv.Itoa(g.least) != least {
			return fmt.Errorf("%q is neither all nor any, nor a number from 1 to %d", least, len(members))
		}
	}
	for _, member := range members {
		inGroup, known := r.labels[member]
		if !known {
			return fmt.Errorf("no witness or group above has the name %q", member)
		}
		if inGroup {
			return fmt.Errorf("%q is a member of a group already", member)
		}
		r.labels[member] = true
	}
	r.groups[name] = g
	return r.label(name)
}

func (r *policyReader) quorum(name string) error {
	if _, known := r.labels[name]; !known && name != None {
		return fmt.Errorf("no witness or group above has the name %q", name)
	}
	if r.QuorumName != "" {
		return errors.New("there is a line quorum above already")
	}
	r.QuorumName, r.QuorumLine = name, r.number
	return nil
}

// PolicyText is the policy that takes each of some keys of logs, and asks no witness.
func PolicyText(keys []string) []byte {
	var b bytes.Buffer
	for _, key := range keys {
		fmt.Fprintf(&b, "log %s\n", key)
	}
	fmt.Fprintf(&b, "\nquorum %s\n", None)
	return b.Bytes()
}
