// Package format specifies the files of the decision log, and its exports. It has only constants, so the writer and package verify
// share no code.
package format

// # Directory
//
//	DATA/log.key            the private key in force, "PRIVATE+KEY+origin+hash+data" of sumdb/note, one line, 0600
//	DATA/log.key.next       the next key (see Keys), 0600
//	DATA/log.checkpoint     the newest checkpoint, 0600. A crash may leave an older one, or none
//	DATA/log.pub            the public keys of all times, oldest first, a line each "origin+hash+data" of sumdb/note
//	DATA/log/lock           held (flock) by the process that writes
//	DATA/log/00000001.db    segments: 8 digits, from 1, without a gap. All but the last are sealed and mode 0400.
//	                        Names that are not 8 digits and ".db" are no segments.
//	DATA/log/journal.0, .1  the journal (see Journal), 0600
//	DATA/log/journal.0.lost-20261123T210000.000000000Z
//	                        a file of a damaged journal, after its loss was accepted, 0600
//	DATA/log/witnessed      the newest checkpoint that enough witnesses cosigned, with their lines (see Witnesses), 0600
//	DATA/log/conflict       a checkpoint that a key of the log signed, and that is not of its tree, 0600
//	DATA/log/suspects       witnesses that said that they saw more of the log, or another one, 0600
//
// A last segment without records counts as not there: it was prepared ahead.
//
// The first key is in log.key.next until the first segment has a record. So where log.key, log.pub, log.checkpoint or
// log/witnessed is, a log was begun, and a writer begins no other in its place: see segment.ErrCut.
//
// # Segment
//
// A bbolt file with these buckets. Numbers are 8 bytes, big-endian, unless they are called decimal.
//
//	meta         "format"   the decimal Version, or VersionJournaled while "journal" is there (see Journal)
//	             "segment"  number of this segment
//	             "first"    sequence of its first record
//	             "edge"     hashes of the greatest whole subtrees that cover [0, first), largest first, 32 bytes
//	                        each: the hashes that tlog.TreeHash(first) reads. A segment can be continued on its own.
//	             "key"      the public key in force, as in log.pub
//	             "clean"    size of the tree at an orderly close; equal to the size now, or the writer crashed
//	             "head"     MAC of the segment's state after each transaction: see MACs
//	             "keys"     the number of the API keys that the newest record of them came with, absent while there is none
//	             "journal"  in the last segment, from the start of the writer to its end: the id of its journal, 16
//	                        bytes, and the number of the last frame that is in the segment. A third number is there
//	                        if the loss of a damaged journal is on record: the time, in Unix nanoseconds, that the
//	                        names of its files are to say
//	records      sequence -> line, without newline. Absent: content redacted, or retired with its segment.
//	hashes       sequence -> the hashes that tlog.StoredHashes gives for that record, 32 bytes each: the leaf's hash, then that of
//	             each subtree it completes, upwards. Never absent. StoredHashIndex(level, n) is at 32*level in the
//	             value of sequence (n+1)<<level - 1.
//	ids          id -> sequence, for the records above; of equal ids the first
//	checkpoints  size, then time in Unix nanoseconds (16 bytes together) -> signed note
//	charges      sequence of a caller's first record here, then a byte: 0 for that caller, 1 for those subjects of its
//	             issuer, 2 for all those callers, that had no account of their own, 3 for the one for whom a caller asks that
//	             asks for many, 4 for those of them without an account of their own -> the weight of their records up to the last
//	             checkpoint: their bytes, and some for each. Gone with the records. Nothing that is verified
//	             rests on it
//
// Unknown buckets and meta keys are passed over. A change that an old reader would misread raises Version.
//
// The digest of a segment file is DigestPrefix and its hexadecimal SHA-256, as sha256sum prints it.
//
// # Journal
//
// Most records are first written to the journal (see package journal), which makes them durable, and a moment later to
// the last segment, which the writer fills from it, frame by frame, in order. Large ones and events go to the segment at
// once. One transaction has the records of a frame and its number in meta "journal". So after a crash the frames behind
// that number are missing in the segment: the next writer fills it with them before it does anything else. A sequence, a
// leaf and a checkpoint there are only of filled records.
//
// A segment whose journal counts is of VersionJournaled, so that a program that knows no journal refuses it. At an
// orderly stop, and when a segment is sealed, all is filled, and it is of Version. If the files of a journal that
// counts are not there, records may be lost, and their number is unknown: that is damage, as frames that cannot be
// read are.
//
// # MACs
//
// Until a checkpoint covers a record, a MAC says that the writer wrote it. Its keys are HKDF-SHA256 of the seed of log.key,
// without salt, and a label. A frame has its own (see package journal). Each transaction puts meta "head": HMAC-SHA256 of
// the number of the segment, the size and the root of the tree, meta "format" and "journal", each as a number of its bytes
// and the bytes, a byte that is 1 if "clean" is the size, and meta "keys" if it is there. A new log.key counts from the transaction that signs it in.
//
// The next writer compares "head". If it is not that of the segment, the records behind the last checkpoint, and those
// that the journal has still, may be anybody's. They are kept, no MAC and no signature is made, and then the record
// unsigned_tail names them, before anything else is written. A frame without its MAC is damage to the journal, and is
// never taken into a segment.
//
// # The coverage of a sealed segment
//
// A segment that is sealed is not written to any more. Which changes to its file are found?
//
//	records, hashes, meta "edge"    any change is found, by verify, and before content is removed (see decisionlog/removal.go)
//	checkpoints                     verify finds one that is changed or added: each is signed, and of a tree that is
//	                                known. One that is missing, and is not the last, is not found
//	meta "format" "segment" "first" opening the log and verify find any change
//	other buckets and meta keys     verify names them
//	ids, charges, meta "key",       nothing covers them. An entry of ids that is wrong makes a record hard to find by
//	"clean", "head", "keys", free pages,    its id, not by its sequence
//	the rest of a page
//
// A file that redaction or retention has written has a digest on record, and verify finds any change to it.
//
// # Line
//
// One JSON object without whitespace between tokens, at most MaxLine bytes, members in this order. The five marked *
// are always there; an absent string, list or object is empty, an absent boolean false. In three lists,
// declared, masked and unknown, an empty list says something else than an absent one.
//
//	sequence*     from 0, without a gap
//	id*           unique; UUIDv7, item n of a batch "<id>.<n>"
//	time*         TimeLayout, UTC. Never before that of the record above; where the clock says otherwise it is repeated
//	clock_behind  true where it was repeated
//	now           TimeLayout, UTC: the clock reading the decision was made with, where it has one
//	tenant        "" for a record that belongs to none
//	kind*         KindDecision, KindPossible, KindSearch, KindBatch, KindAdmin, KindReceipt, and those of decisionlog.Options.Kinds
//	caller        "" for none
//	declared      decision, possible, search: array of the obligation types that the caller's registration declares. [] is a
//	              registration that declares none; absent is a caller that declares its types itself, in its requests
//	request_id, trace_id
//	request       {"subject":…,"action":…,"resource":…,"context":…}, AuthZEN form, masked; absent ones left out
//	shape         "native": the request came in that shape, and is written in AuthZEN form all the same; absent is
//	              AuthZEN
//	masked        array of {"at","type","part","removed"}, in the order of the request: the places that differ, in this line,
//	              from the sent request. [] says that none does, although it holds a text like that of a mask. See Masked
//	unknown       possible: array of JSON Pointers into the request, masked: it asked for the possible answers with any values
//	              there. [] says that all was known. A pointer that is not whole ends in "/…"
//	inherits      item of a batch: array of the members of request that stand in the record of kind KindBatch whose id is
//	              the batch's, in the same segment: subject | action | resource (their properties), context, and
//	              supported_obligations, which a context of the item's own lacks
//	query         search: subject | resource | action
//	found         search: array of the ids (or action names) returned
//	examined      search: number of candidates decided; always there in a search
//	decision      boolean; always there in a decision
//	possible      boolean; of one question with unknown places: false if nothing can be permitted
//	items         array of {"n","request","masked","unknown","inherits","possible",…}: see Possible
//	rest          {"more","possible","sha256"}: see Possible
//	approved      true: the decision, an allow or a deny, is the answer of the policies when they were asked with an approval.
//	              An approval that turned out not to count leaves the answer to the question without it, and no approved
//	adopted       boolean; whether the PEP adopted Obligations Core. Absent: the obligations are of the draft of July 2026
//	reason, reason_user
//	determining   array of policy ids
//	overruled     array of policy ids: if the reason made a deny of an allow, those that would have determined the allow
//	errors        array of {"policy","position","kind"}
//	obligations   array, AuthZEN form, masked
//	required      array of obligation types that were not declared
//	left_out      array of {"id","reason"}
//	discharged    array of {"id","type","approval","continues"?,"shares"?}; continues is {"decision","round"}: no use of the
//	              approval, but the round of that number which goes on from the use by that decision. shares is the id of a
//	              decision: no use of its own, but a part of the use by that one
//	capability    {"id"?,"held","depth","ancestors"?,"reason"?,"used"?,"grants"?,"proof"?}: what came of the capability that the request
//	              showed. It is held, or reason is why it does not count; used: the decision has one of a number of uses.
//	              grants: it showed none, and the decision grants this one, or renews it. ancestors are the ids of those that
//	              it was made from, the parent first. proof is {"jkt","jti","iat","aud","tool","args","nonce"?,"alg",
//	              "signature"}: all that its holder signed, so that the signature can be checked with the holder's key. If
//	              anything of the arguments is masked, args is a keyed hash of that hash, and evidence stands in the place of
//	              signature: see Evidence
//	mismatch      array of JSON Pointers into the body that was sent, in order: the places that could not be put to the
//	              policies, or counted as an error where they read it. Their names are masked like texts; a name that
//	              is too long ends in … or is left out; there may be more than are listed: then there
//	              are 16, or the last one is "/…", or one stands for several that were masked alike
//	bundle        digest of the bundle that decided
//	event         admin and later kinds: the name of the event
//	details       admin and later kinds: an object
//	salt*         128 random bits in unpadded base64url, so that a redacted line cannot be guessed from its leaf hash
//
// New members come before salt and are passed over by readers that do not know them.
//
// # Masked
//
// Each entry of masked is a place in the member request of the same line, which hides the value that was sent there and all below
// it. at is a JSON Pointer (RFC 6901), and type the type of that value: string, number, bool, object or array.
//
//	{"at","type"}                 a value that was masked whole: a text stands in its place. In an object or array it
//	                              may also be values below it, more than are listed: then the place stands for all
//	{"at","type":"string","part"} a string of which a part was masked
//	{"at","type":"object","part"} an object of which the name of a member was masked, or a member was dropped for its
//	                              name. Its members of other names are listed below it as anywhere
//	{"at","type","removed"}       a value that could not be masked: there is nothing in its place, in an array null
//
// Nothing below an entry without part is listed. null is never masked. There are at most 64 entries, and at most 4 in
// the worst case: the properties of subject, action and resource, and the context. The places in inherited parts are
// listed in the record of kind KindBatch, and in the item's the places in its own.
//
// # Evidence
//
// A plain hash of masked arguments, and a signature over it, would let a reader try guesses. The keys of a tenant are
// HKDF-SHA256 of mask.key, without salt, with the labels "policy-service evidence hash TENANT" and "policy-service
// evidence seal TENANT". args is then "keyed:" and the HMAC-SHA256, in unpadded base64url, of the hash that was signed, and
// evidence, in unpadded base64url, a nonce of 12 bytes and the AES-256-GCM of a JSON array, with the id of the record as
// additional data: the hash that was signed, and the signature. What cannot be written so is left out.
//
// # Records the log makes itself (kind admin)
//
//	log_created            sequence 0. details {"format","origin","key"}
//	segment_opened         first record of every segment but the first. details {"segment","unsigned_tails"}: the last
//	                       are the details of the first 100 records unsigned_tail before it, absent is none
//	log_opened_after_crash details {"size","replayed","signed","cut_bytes","cut_seconds"}: records that were there, and
//	                       how many records in front of this one, from "size" on, were in the journal only; absent is 0.
//	                       Signed is how many the last checkpoint that was there covers, absent is 0. If no checkpoint
//	                       covers more, then no more than so many bytes, and nothing older than so many seconds, can
//	                       have been taken from the end
//	unsigned_tail          records that no checkpoint covered, and no MAC. details {"from","to","cause"}: the first and
//	                       the last of them. cause is "missing" or "wrong": the state of "head"
//	loss_accepted          a damaged journal has lost records. details {"file","offset","reason","frames","lost","kept",
//	                       "files"}: where the damage begins, the numbers of the frames that cannot be read, in pairs of
//	                       the first and the last, how many records they have (absent if unknown), how many records
//	                       in front of this one could be read, and the new names of the journal's files
//	writes_resumed         details {"failed_at","resumed_at","error","refused","dropped","dropped_first","dropped_last"}:
//	                       refused with an error, or dropped in best_effort mode. The last two are the dates of the
//	                       first and last dropped. error is disk_full | read_only | io | other
//	records_dropped        details {"dropped","dropped_first","dropped_last"}: best_effort, the queue was full
//	key_rotated            details {"old","new"}: public keys
//
// # Batches (kind batch)
//
//	Precedes the items of a batch, in the same transaction and segment, where one of them inherits: its id is the
//	batch's, its tenant and caller are theirs. request has of subject, action and resource "properties" alone, and
//	context; of these the parts that items inherit. Only items come between it and an item. It is redacted by itself, and
//	the parts that its items inherit are gone with it
//
// # Possible (kind possible)
//
//	Questions with options.unknown. A single question has the members of a decision, with possible in the place
//	of decision. The questions of a batch are one record. Its id is the batch's, or "<id>.possible" if the batch has
//	other items, too. request has the names that all questions have, and the inherited parts, masked the places in it,
//	and unknown the places if all have the same. items has of each question n, its place in the batch, and its
//	own parts: a member of request that it lacks is the record's, without the properties unless inherits names them. A record
//	has MaxPossible bytes of request, masked, unknown and items. The questions after that are counted in rest: more,
//	how many of them were possible, and the SHA-256 (hex) of their texts, concatenated. If the shared part is
//	longer, request has the names alone, and its text is in front of theirs in the hash
//
// # Receipts (kind receipt)
//
//	details {"decision","obligations":[{"id","status","detail"}]}: the report of that decision's caller about its
//	obligations. status is discharged | failed. Each obligation has one at most; detail may be left out
//
// # Drift of tools (kind admin, event tool_drift)
//
//	details {"server","tool","change","with","parts","locked","found"}, those that are empty left out: the caller, a
//	gateway, found something that differs from the operator's lock. change is new | gone | renamed | swapped | changed |
//	instructions | more, parts an array of texts, locked and found are digests
//
// # Checkpoint
//
// A C2SP tlog-checkpoint, signed note of sumdb/note with Ed25519. Origin and key name are the same. Extension lines
// are a word, a space and a value; unknown ones are passed over.
//
//	ORIGIN
//	SIZE
//	ROOT, standard base64
//	time 2026-01-02T15:04:05.000000000Z
//	next-key ORIGIN+hash+data         only in a checkpoint that signs a new key in
//	                                  (empty line)
//	— ORIGIN SIGNATURE
//
// # Witnesses
//
// Their three files are beside the log, and no part of it: the log is read and verified without them. The first two are
// checkpoints, and begin as those of the log. Witnesses sign below, as C2SP tlog-cosignature says. The third is an array
// in JSON of {"witness","size","ours","status","since"}: a witness, how many records it says that it saw, how many there
// were here, the status of its answer, and the time, in TimeLayout, of the first such answer.
//
// # Keys
//
// A new key is written to log.key.next. One transaction then holds the record key_rotated, meta "key" with the new
// key, and a checkpoint of the tree with that record, with a next-key line, signed by the old key and by the new.
// Then log.key.next takes log.key's place and the old private key is gone. A checkpoint is good where the key in force
// after the last next-key at or below its size signed it.
const (
	// Version is the version of all of this. VersionJournaled is that of a segment whose journal may have records
	// that the segment does not have, so that a program without journal support cannot skip them.
	Version          = 1
	VersionJournaled = 2

	// LogDir, LockFile, KeyFile, NextKeyFile, CheckpointFile, PublicKeyFile, WitnessedFile, ConflictFile and SuspectsFile are names below
	// the data directory; SegmentName makes a segment's name below LogDir.
	LogDir         = "log"
	LockFile       = "log/lock"
	KeyFile        = "log.key"
	NextKeyFile    = "log.key.next"
	PublicKeyFile  = "log.pub"
	CheckpointFile = "log.checkpoint"
	WitnessedFile  = "log/witnessed"
	ConflictFile   = "log/conflict"
	SuspectsFile   = "log/suspects"
	SegmentName    = "%08d.db"

	// The buckets of a segment.
	BucketMeta        = "meta"
	BucketRecords     = "records"
	BucketHashes      = "hashes"
	BucketIDs         = "ids"
	BucketCheckpoints = "checkpoints"
	BucketCharges     = "charges"

	// The keys of the meta bucket.
	MetaFormat  = "format"
	MetaSegment = "segment"
	MetaFirst   = "first"
	MetaEdge    = "edge"
	MetaKey     = "key"
	MetaClean   = "clean"
	MetaJournal = "journal"
	MetaHead    = "head"
	MetaKeys    = "keys"

	// The kinds of record there always are.
	KindDecision = "decision"
	KindPossible = "possible"
	KindSearch   = "search"
	KindBatch    = "batch"
	KindAdmin    = "admin"
	// KindReceipt is the kind of record with a PEP's report about the obligations of a decision.
	KindReceipt = "receipt"

	// The events the log records itself.
	EventCreated    = "log_created"
	EventSegment    = "segment_opened"
	EventCrash      = "log_opened_after_crash"
	EventUnsigned   = "unsigned_tail"
	EventLoss       = "loss_accepted"
	EventResumed    = "writes_resumed"
	EventDropped    = "records_dropped"
	EventKeyRotated = "key_rotated"
	EventRedacted   = "record_redacted"
	EventRetired    = "segments_retired"

	// The extension lines of a checkpoint.
	ExtensionTime    = "time"
	ExtensionNextKey = "next-key"

	// The reasons why a record is without its line.
	WhyFiltered = "filtered" // the reader may not see it
	WhyRedacted = "redacted"
	WhyRetired  = "retired"

	TimeLayout   = "2006-01-02T15:04:05.000000000Z"
	DigestPrefix = "sha256:"

	// The limits, in bytes. MaxPossible is that of the questions in a record of KindPossible: a list may ask thousands, and shares
	// whatever its caller sent.
	MaxLine            = 16 << 20
	MaxAppend          = 64 << 20 // all lines of one Append
	MaxCheckpointBytes = 64 << 10
	MaxPossible        = 64 << 10
)
