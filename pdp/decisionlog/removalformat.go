package decisionlog

import (
	"fmt"
	"strings"
	"time"
)

// # Removing content
//
// Redaction and retention put a new file in the place of a sealed segment. It has
// the old one's buckets and values, but:
//
//	record_redacted    the record's line is not in "records"; its id stays in "ids"
//	segments_retired   "records" and "ids" are empty. The first record of a segment is the log's own and is never
//	                   redacted, so a segment that does not have it is a retired one
//
// "hashes" stays whole, so every leaf and every proof is what it was. The admin
// record of it says which files there are from now on:
//
//	record_redacted    details {"sequence","id","reason","file":FILE}
//	segments_retired   details {"below","reason","files":[FILE,…]}
//	FILE               {"segment","file","first","records","size","digest"}: a segment and its new file
//
// "below" is cumulative: no record with a lower sequence has content any more,
// from this run of retention or an earlier one, so that the record may itself be
// retired once a later one stands. "reason" of a retirement is "age" or "size".
//
// The digest of the old file is on record before any of this: else what was done to it
// could not be told from what is done now. The steps, each durable before the next:
//
//	1  the new file is written as log/00000001.db.<size>.next, <size> being the number of records then
//	2  the admin record is appended
//	3  the active segment is sealed, with a checkpoint: content that is gone is believed of a signed record only,
//	   and who reads beside a server reads sealed segments only
//	4  the new file takes the segment's name
//
// After a crash before 2 the new file belongs to no record, and is removed. After
// one before 4 a record from <size> on names it, and it takes its place. Until
// then the segment is the file that was: a reader accepts, as a segment's file,
// the one that segment_sealed names or any that a later record names.
const (
	EventRedacted = "record_redacted"
	EventRetired  = "segments_retired"

	nextSuffix = ".next"
	// lockWait is how long a segment that somebody else holds is waited for.
	lockWait = 2 * time.Second
)

// SegmentFile names a segment's file in an admin record.
type SegmentFile struct {
	Segment uint64 `json:"segment"`
	File    string `json:"file"`
	First   uint64 `json:"first"`
	Records uint64 `json:"records"`
	Size    int64  `json:"size"`
	Digest  string `json:"digest"`
}

// isNext takes apart the name of a new file: which segment, and how many records
// there were when it was written.
func isNext(name string) (segment, size uint64, ok bool) {
	base, ok := strings.CutSuffix(name, nextSuffix)
	if !ok {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(base, SegmentName+".%d", &segment, &size)
	return segment, size, err == nil && n == 2 && fmt.Sprintf(SegmentName+".%d", segment, size) == base
}
