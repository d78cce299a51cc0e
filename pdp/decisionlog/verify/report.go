package verify

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Code is the result of verify, and the exit code of `policy-service log verify`.
type Code int

// Outsiders rely on these numbers: scripts of auditors branch on them.
const (
	Verified     Code = 0
	Usage        Code = 2  // verify was asked wrongly: a key that is none, a directory that is not there
	Altered      Code = 3  // a record, a checkpoint or a file differs from the signed one
	Missing      Code = 4  // a record or a file is not there, and those after it are
	Truncated    Code = 5  // the end is not there
	Forked       Code = 6  // two histories that cannot both be this log's
	TimeReversed Code = 7  // a record is dated before the one in front of it, and not marked so
	Unreadable   Code = 8  // not a log, or damaged so that its records cannot be found
	OtherKey     Code = 9  // signed, but not by the key that was to sign it
	Unsigned     Code = 10 // with Options.Strict: signed, and nothing proves that the service wrote all of it
	Unwitnessed  Code = 11 // no checkpoint has the quorum of the policy; with Options.Strict: a witness knows another log
)

var codeNames = map[Code]string{
	Verified: "verified", Usage: "usage", Altered: "altered", Missing: "missing", Truncated: "truncated",
	Forked: "forked", TimeReversed: "time_reversed", Unreadable: "unreadable", OtherKey: "other_key", Unsigned: "unsigned",
	Unwitnessed: "unwitnessed",
}

// advice says how to go on, by result.
var advice = map[Code]string{
	Altered:      "keep the directory as it is, as evidence, and compare the record with a copy or an earlier export",
	Missing:      "keep the directory as it is, as evidence, and look for the records in a copy or an earlier export",
	Truncated:    "look for the records after the cut in a copy or an earlier export; a copy that was put back on purpose ends the old log, and a new one begins with its own key",
	Forked:       "keep both histories as evidence, and trust what the checkpoint kept elsewhere signs",
	TimeReversed: "keep the directory as it is, as evidence, and see what the clock of that machine did then",
	Unreadable:   "verify a copy or an export; where the disk is at fault, restore the last copy that verifies",
	Unsigned:     "see what was done by these records; if no crash and no restored file explains them, look for who can write to the directory",
	Unwitnessed:  "take the proof of a new record again after some seconds, or ask the operator when the witnesses last cosigned; if a witness knows another history, keep both as evidence, and trust what the witnesses cosigned",
	OtherKey:     "see whether --key is this log's, and --policy has its newest key, too; if so, somebody has signed this history with another key",
}

// String is the code's name.
func (c Code) String() string { return codeNames[c] }

// MarshalText makes JSON show the name.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Report is the result of verify, and the document that `log verify --json` prints. Programs read the document:
// members may be added, never renamed. Proved is empty unless Code is Verified. NotExcluded is there in any case,
// because an auditor who reads "verified" must know the possibilities that are left.
type Report struct {
	Code       Code     `json:"result"`
	Exit       int      `json:"exit"`                 // the number of Code
	Problem    *Problem `json:"problem,omitempty"`    // the first one; nil if Code is Verified
	Origin     string   `json:"origin,omitempty"`     // the name of the log
	Key        string   `json:"key,omitempty"`        // the verifier key that the last checkpoint was checked with
	KeyGiven   bool     `json:"key_given"`            // the key was given, and not taken from the log itself
	Size       int64    `json:"size"`                 // records that the last checkpoint covers
	Root       string   `json:"root,omitempty"`       // its Merkle root, base64
	Checkpoint string   `json:"checkpoint,omitempty"` // the last checkpoint, unchanged
	Records    int64    `json:"records"`              // records whose content was read and checked
	Redacted   int64    `json:"redacted"`             // records whose content was removed, each by a recorded redaction
	Retired    int64    `json:"retired"`              // records in segments that retention dropped, each recorded
	Skipped    int64    `json:"skipped"`              // records that a filter left out of an export; their hashes are there
	Unsigned   int64    `json:"unsigned"`             // records after the last checkpoint, which no signature covers
	// Witnessed is the part that the quorum of the policy cosigned.
	Witnessed *Witnessed `json:"witnessed,omitempty"`
	Live      bool       `json:"live,omitempty"` // a server holds the log: its active segment was not read
	// Unknown are the buckets and meta keys of segments that no log has: nothing covers their content.
	Unknown []string `json:"unknown,omitempty"`
	// UnsignedTails were named when a start found them.
	UnsignedTails []Tail   `json:"unsigned_tails,omitempty"`
	OutsideStart  *Unnamed `json:"outside_start,omitzero"`  // decisions while no service ran, by the records
	UnknownBundle *Unnamed `json:"unknown_bundle,omitzero"` // decisions by a bundle that no record says was loaded
	// Withdrawn is how many allows were never answered, by their own log, and WithdrawnFirst are the first of them.
	Withdrawn      int64       `json:"withdrawn,omitzero"`
	WithdrawnFirst []Withdrawn `json:"withdrawn_first,omitempty"`
	// Parts are those of a merge of exports. Then all that the report says of one log is in them, and the counts are of all
	// together.
	Parts       []Report `json:"parts,omitempty"`
	Proved      []string `json:"proved"`
	NotExcluded []string `json:"not_excluded"`
	Read        int64    `json:"-"` // segments that were read
	Digested    int64    `json:"-"` // files whose digest is one that a signed record gives
	checkpoints int64    // checkpoints whose signature and root were checked
}

// Verified says whether all that was checked held.
func (r *Report) Verified() bool { return r.Code == Verified }

// A Problem is the first thing found wrong, and where.
type Problem struct {
	Code     Code   `json:"-"`
	Sequence int64  `json:"-"`                // of the record; -1, and not in the document, if it is not about a record
	Origin   string `json:"origin,omitempty"` // of the part of a merge that it is about
	File     string `json:"file,omitempty"`   // as it was opened; empty for a stream
	Line     int64  `json:"line,omitempty"`   // of an export, from 1; 0 for anything else
	What     string `json:"what"`             // for a person to read
	Try      string `json:"try"`              // how to go on
	found    int64  // the record that stands where another belongs
}

// Error is the problem in one line.
func (p *Problem) Error() string {
	text := ""
	if p.File != "" {
		text += p.File + ": "
	}
	if p.Line > 0 {
		text += fmt.Sprintf("line %d: ", p.Line)
	}
	if p.Origin != "" {
		text += p.Origin + ": "
	}
	if p.Sequence >= 0 {
		text += fmt.Sprintf("record %d: ", p.Sequence)
	}
	return text + p.What
}

// MarshalJSONTo leaves out the sequence if the problem is not about a record.
func (p *Problem) MarshalJSONTo(enc *jsontext.Encoder) error {
	type Plain Problem // has no MarshalJSONTo
	document := struct {
		Sequence *int64 `json:"sequence,omitempty"`
		*Plain
	}{Plain: (*Plain)(p)}
	if p.Sequence >= 0 {
		document.Sequence = &p.Sequence
	}
	return json.MarshalEncode(enc, document)
}

func problem(code Code, sequence int64, format string, args ...any) *Problem {
	return &Problem{Code: code, Sequence: sequence, What: fmt.Sprintf(format, args...)}
}

// asProblem finds the problem in an error; any other error is one of reading.
func asProblem(err error) *Problem {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p
	}
	return problem(Unreadable, -1, "%v", err)
}
