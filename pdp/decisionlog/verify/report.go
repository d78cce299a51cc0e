package verify

import (
	"errors"
	"fmt"
)

// A Code is what verify found, and the exit code of `policy-service log verify`.
type Code int

// Outsiders rely on these numbers: scripts of auditors branch on them.
const (
	Verified     Code = 0
	Usage        Code = 2 // verify was asked wrongly: a key that is none, a directory that is not there
	Altered      Code = 3 // a record, a checkpoint or a file is not what was signed
	Missing      Code = 4 // a record or a file is not there, and what stands after it is
	Truncated    Code = 5 // the end is not there
	Forked       Code = 6 // two histories that cannot both be this log's
	TimeReversed Code = 7 // a record is dated before the one in front of it, and not marked so
	Unreadable   Code = 8 // not a log, or damaged so that its records cannot be found
	OtherKey     Code = 9 // signed, but not by the key that was to sign it
)

var codeNames = map[Code]string{
	Verified: "verified", Usage: "usage", Altered: "altered", Missing: "missing", Truncated: "truncated",
	Forked: "forked", TimeReversed: "time_reversed", Unreadable: "unreadable", OtherKey: "other_key",
}

// String is the code's name, as it stands in JSON output.
func (c Code) String() string { return codeNames[c] }

// A Report is what verify found, and is the document that `log verify --json` prints. Programs read the document: members
// may be added, never renamed. Proved is empty unless Code is Verified. NotExcluded is there in any case, because an
// auditor who reads "verified" must know what else could have happened.
type Report struct {
	Code        Code     `json:"-"`
	Problem     *Problem `json:"-"`                    // the first one; nil if Code is Verified
	Origin      string   `json:"origin,omitempty"`     // the name of the log
	Key         string   `json:"key,omitempty"`        // the verifier key that the last checkpoint was checked with
	KeyGiven    bool     `json:"key_given"`            // the key was given, and not taken from the log itself
	Size        int64    `json:"size"`                 // records that the last checkpoint covers
	Root        string   `json:"root,omitempty"`       // its Merkle root, base64
	Checkpoint  string   `json:"checkpoint,omitempty"` // the last checkpoint, unchanged
	Records     int64    `json:"records"`              // records whose content was read and checked
	Redacted    int64    `json:"redacted"`             // records whose content was removed, each by a recorded redaction
	Retired     int64    `json:"retired"`              // records in segments that retention dropped, each recorded
	Skipped     int64    `json:"skipped"`              // records that a filter left out of an export; their hashes are there
	Unsigned    int64    `json:"unsigned"`             // records after the last checkpoint, which no signature covers
	Checkpoints int64    `json:"-"`                    // checkpoints whose signature and root were checked
	Live        bool     `json:"live,omitempty"`       // a server holds the log: its active segment was not read
	Files       Files    `json:",inline"`
	Proved      []string `json:"proved"`
	NotExcluded []string `json:"not_excluded"`
}

// Files are the segments of a data directory.
type Files struct {
	Read       int64    `json:"-"`
	Digested   int64    `json:"-"`                    // files whose digest is the one that a signed record gives
	Undigested []string `json:"undigested,omitempty"` // sealed files whose digest no signed record gives
}

// Verified says whether all that was checked held.
func (r *Report) Verified() bool { return r.Code == Verified }

// A Problem is the first thing found wrong, and where.
type Problem struct {
	Code     Code   `json:"-"`
	Sequence int64  `json:"-"`              // of the record; -1 if it is not about a record
	File     string `json:"file,omitempty"` // as it was opened; empty for a stream
	Line     int64  `json:"line,omitempty"` // of an export, from 1; 0 for anything else
	What     string `json:"what"`           // for a person to read
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
	if p.Sequence >= 0 {
		text += fmt.Sprintf("record %d: ", p.Sequence)
	}
	return text + p.What
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
