package decisionlog

// An export is lines of JSON, each ended by one \n, no blank ones. A line that
// begins with {"export": is of the envelope; every other line is a record, byte
// for byte as it is stored, which is the input of its leaf. A record line never
// begins so: its first member is "sequence".
//
//	{"export":"begin","format":1,"form":"log","origin":"…","size":7,"checkpoint":"…","keys":["…"],"filter":{…},"live":true}
//	{"export":"leaves","first":0,"why":"retired","hashes":["…","…"]}
//	{"sequence":2,…}
//	{"export":"proof","sequence":2,"hashes":["…"]}
//	{"export":"leaves","first":3,"why":"redacted","hashes":["…"]}
//	{"sequence":4,…}
//	{"export":"proof","sequence":4,"hashes":["…"]}
//	{"export":"leaves","first":5,"why":"filtered","hashes":["…","…"]}
//	{"export":"end","records":2,"size":7,"digest":"…"}
//
// "begin" is the first line. "checkpoint" is the signed note, whole, of the tree
// of "size" leaves that everything below belongs to. "keys" are the note
// verifier keys the log says it was signed with, oldest first: a reader trusts
// none of them because they stand here. "filter" is there where records were
// left out by one, and holds its members that are set; "live" where a server
// was running and the log went on past "size" when this was written.
//
// In the form "log" every leaf from 0 to size-1 is there once, in order: as a
// record, or as a hash in "leaves" with the reason why its record is not there.
// "retired" (its segment was dropped) and "redacted" are believed only with the
// admin record that says so, which an export without a filter holds. With a
// filter they and "filtered" say the same: there was something here. The record
// of a batch is there, whatever the filter, where an item of it is that inherits
// from it. One
// "leaves" line holds up to [ExportHashes] hashes, so that a reader's lines are
// bounded. "proof" stands after its record where proofs were asked for.
//
// In the form "proof" records stand alone, each followed by its "proof", in
// order of sequence; there are no "leaves". Before an item of a batch stands the
// record that it inherits from, unless that is gone.
//
// A proof is the RFC 6962 audit path of the leaf in the tree of the checkpoint,
// leaf end first (tlog.RecordProof). A hash is base64, standard, padded.
//
// "end" is the last line: the number of record lines, the size again, and the
// SHA-256, as 64 hexadecimal digits, of every byte before this line. The digest
// finds accidents, also a record that became its hash; against intent only the
// checkpoint stands.
//
// The form "consistency" is one line, and proves that the log of "new" is the
// log of "old" with more at its end (tlog.TreeProof, RFC 6962):
//
//	{"export":"consistency","format":1,"origin":"…","old":"…","new":"…","hashes":["…"]}
//
// How it may grow: members may be added to any envelope line and readers ignore
// those they do not know; a new envelope line, a new form, or another meaning of
// what is here, is another format number, which readers refuse.
const (
	ExportFormat      = 1
	ExportPrefix      = `{"export":`
	ExportBegin       = "begin"
	ExportLeaves      = "leaves"
	ExportProof       = "proof"
	ExportEnd         = "end"
	ExportConsistency = "consistency"

	FormLog   = "log"
	FormProof = "proof"

	WhyFiltered = "filtered"
	WhyRedacted = "redacted"
	WhyRetired  = "retired"

	// ExportHashes is how many hashes one "leaves" line holds at most.
	ExportHashes = 64
)

type exportBegin struct {
	Export     string   `json:"export"`
	Format     int      `json:"format"`
	Form       string   `json:"form"`
	Origin     string   `json:"origin"`
	Size       int64    `json:"size"`
	Checkpoint string   `json:"checkpoint"`
	Keys       []string `json:"keys,omitempty"`
	Filter     *Filter  `json:"filter,omitempty"`
	Live       bool     `json:"live,omitempty"`
}

type exportLeaves struct {
	Export string   `json:"export"`
	First  uint64   `json:"first"`
	Why    string   `json:"why"`
	Hashes hashList `json:"hashes"`
}

type exportEnd struct {
	Export  string `json:"export"`
	Records int64  `json:"records"`
	Size    int64  `json:"size"`
	Digest  string `json:"digest"`
}

type exportConsistency struct {
	Export string   `json:"export"`
	Format int      `json:"format"`
	Origin string   `json:"origin"`
	Old    string   `json:"old"`
	New    string   `json:"new"`
	Hashes hashList `json:"hashes"`
}
