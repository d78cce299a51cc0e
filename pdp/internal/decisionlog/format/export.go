package format

// An export is lines of JSON, each ended by one \n, without blank lines. A line that
// begins with {"export": is of the envelope. Every other line is a record, byte
// for byte as it is stored, which is the input of its leaf. A record line never
// begins so: its first member is "sequence".
//
//	{"export":"begin","format":1,"form":"log","origin":"…","size":7,"checkpoint":"…","keys":["…"],"filter":{…},"live":true}
//	{"export":"leaves","first":0,"why":"retired","hashes":["…","…"]}
//	{"export":"file","sha256":"…","content":"…"}
//	{"export":"bundle","digest":"h1:…","list":"…"}
//	{"sequence":2,…}
//	{"export":"proof","sequence":2,"hashes":["…"]}
//	{"export":"leaves","first":3,"why":"redacted","hashes":["…"]}
//	{"sequence":4,…}
//	{"export":"proof","sequence":4,"hashes":["…"]}
//	{"export":"leaves","first":5,"why":"filtered","hashes":["…","…"]}
//	{"export":"end","records":2,"size":7,"digest":"…"}
//
// "begin" is the first line. "checkpoint" is the whole signed note of the tree
// of "size" leaves that everything below belongs to. "keys" are the note
// verifier keys that the log names as its own, oldest first. Their presence
// is no reason to trust them. "filter" is there if a filter left out records,
// and holds the members of the filter that are set. "live" is there if a server
// was running, and the log went on past "size" when this was written.
//
// In the form "log" every leaf from 0 to size-1 is there once, in order: as a
// record, or as a hash in "leaves" with the reason why its record is not there.
// "retired" (its segment was dropped) and "redacted" are believed only with the
// admin record that says so, which an export without a filter holds. With a
// filter they and "filtered" say the same: there was something here. If an item of a
// batch is there and inherits from the record of the batch, that record is there,
// whatever the filter. One "leaves" line holds up to [MaxHashes] hashes, so that a
// reader's lines are bounded. "proof" stands after its record if proofs were asked for.
//
// In the form "proof" records stand alone, each followed by its "proof", in
// order of sequence. There are no "leaves". Before an item of a batch stands the
// record that it inherits from, unless the content of that record is gone.
//
// If bundles were asked for, each bundle that a record names stands before the first of these records, if its files are kept:
// each file that did not come before as "file", with the SHA-256 of its content in hexadecimal and the content in base64; one of
// more than 1 MiB in several lines, all but the last of which have "more"; and then "bundle" with the list of them, of which the
// digest is made (dirhash.Hash1). Nothing but these hashes vouches for them, and the digest stands in the record.
//
// A proof is the RFC 6962 audit path of the leaf in the tree of the checkpoint,
// leaf end first (tlog.RecordProof). A hash is base64, standard, padded.
//
// "end" is the last line: the number of record lines, the size again, and the
// SHA-256, as 64 hexadecimal digits, of every byte before this line. The digest
// finds accidents, such as a record that became its hash. Against intent only the
// checkpoint stands. If witnesses cosigned a checkpoint of the log, and it is another one than that of "begin", the line
// has it as "witnessed", and as "hashes" the proof that the longer one of the two continues the other (tlog.TreeProof; none if
// they are of one size). It is the newest one when the line was written, so two readers of one export may have two.
//
// The form "consistency" is one line, and proves that the log of "new" is the
// log of "old" with more at its end (tlog.TreeProof, RFC 6962):
//
//	{"export":"consistency","format":1,"origin":"…","old":"…","new":"…","hashes":["…"]}
//
// How the format may grow: members may be added to any envelope line, and readers ignore
// members that they do not know. A new envelope line, a new form, or another meaning of
// what is here, is another format number, which readers refuse.
const (
	// ExportVersion is the number of this format.
	ExportVersion = 1
	// ExportPrefix is what each line of the envelope begins with.
	ExportPrefix = `{"export":`

	// The lines of the envelope.
	LineBegin       = "begin"
	LineLeaves      = "leaves"
	LineProof       = "proof"
	LineEnd         = "end"
	LineFile        = "file"
	LineBundle      = "bundle"
	LineConsistency = "consistency"

	// The forms.
	FormLog   = "log"
	FormProof = "proof"

	// MaxHashes is how many hashes one "leaves" line holds at most.
	MaxHashes = 64
)
