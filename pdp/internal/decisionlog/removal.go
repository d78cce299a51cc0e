package decisionlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json" // for what is recorded: it takes a reason that is no UTF-8, and escapes as in older records
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
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
// "hashes" stays whole, so every leaf and every proof stays as it was. The admin
// record of it says which files there are from now on:
//
//	record_redacted    details {"sequence","id","reason","file":FILE}
//	segments_retired   details {"below","reason","files":[FILE,…]}
//	FILE               {"segment","file","first","records","size","digest","replaces"}: a segment and its new file, and
//	                   the digest of the file that it replaces
//
// "below" is cumulative: no record with a lower sequence has content any more,
// from this run of retention or an earlier one, so that the record may itself be
// retired once a later one stands. "reason" of a retirement is "age" or "size".
//
// A new file would hide changes to the old one. So the old file is read first: each line must be the one that its leaf hash
// was made of, the hashes must be those of the tree, and that tree the beginning of the one that the writer goes on with,
// which was checked against the last signature when the log was opened. A line that is missing must have a record_redacted.
// If not, the segment was altered, and nothing is removed from it. The steps, each durable before the next:
//
//	1  the new file is written as log/00000001.db.<size>.next, <size> being the number of records then
//	2  the admin record is appended, or that of each record that is redacted with it
//	3  the active segment is sealed, with a checkpoint: that content is gone is believed of a signed record only,
//	   and a reader beside a server reads sealed segments only
//	4  the new file takes the segment's name
//
// After a crash before 2 the new file belongs to no record, and is removed. After
// one before 4 a record from <size> on names it, and it takes its place. Until
// then the segment is the file that was: verify accepts as a segment's file any that
// these records name, in "digest" or in "replaces".

// lockWait is how long a removal waits for a segment that another process holds.
const lockWait = 2 * time.Second

// SegmentFile is a segment's new file in an admin record.
type SegmentFile struct {
	Segment  uint64 `json:"segment"`
	File     string `json:"file"`
	First    uint64 `json:"first"`
	Records  uint64 `json:"records"`
	Size     int64  `json:"size"`
	Digest   string `json:"digest"`
	Replaces string `json:"replaces"` // the digest of the old file
}

// removals allows one redaction or retention at a time, and remembers facts about segments.
type removals struct {
	log *Log
	sync.Mutex
	retired  uint64           // segments up to this number are retired
	contents map[uint64]int64 // bytes that retention can free of the sealed ones that it has seen
}

// keeping returns the value for the new file, or nil to leave it out.
type keeping func(bucket, key, value []byte) []byte

// removal is one removal of content, in the steps above.
type removal struct {
	log      *Log
	event    string
	segments []segment.Info
	keep     keeping
	// details returns the details of the admin records, given the new files.
	details func([]SegmentFile) []any
	tenant  string
	caller  string
	files   []SegmentFile
	next    []string // the new files' paths, one for each
}

// steps returns the steps of a removal, in order. A test simulates a crash by running only the first of them.
func (r *removal) steps() []func(context.Context) error {
	return []func(context.Context) error{r.writeFiles, r.putOnRecord, r.log.Rotate, r.replaceSegments}
}

func (r *removal) run(ctx context.Context) error {
	for _, step := range r.steps() {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes the new files. If it fails, it removes them: without the record they are of no use.
// A segment that was altered stays, but the segments before it can go.
func (r *removal) writeFiles(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			for _, name := range r.next {
				err = errors.Join(err, os.Remove(name))
			}
		}
	}()
	tree, err := r.log.writer.treeEdge(ctx)
	if err != nil {
		return err
	}
	for i, segment := range r.segments {
		err := r.writeFile(ctx, segment, tree)
		if i > 0 && errors.Is(err, record.ErrDamaged) {
			break // the next run says why
		}
		if err != nil {
			return fmt.Errorf("%s cannot be written anew: %w", filepath.Base(segment.Path), err)
		}
	}
	return plainfile.SyncDir(filepath.Dir(r.segments[0].Path))
}

// writeFile checks a segment, and writes its new file. Both read the same open file, and so does the old digest.
func (r *removal) writeFile(ctx context.Context, info segment.Info, tree segment.Edge) (err error) {
	next := fmt.Sprintf("%s.%d%s", info.Path, r.log.Size(), segment.NextSuffix)
	sealed, err := r.log.FindFile(info.First)
	if err == nil {
		err = sealed.TakeFromWriter() // sealed a moment ago, it may be locked by this process still
	}
	if err != nil {
		return err
	}
	var old *os.File
	db, err := segment.OpenFile(info.Path, boltfile.ToRead, bbolt.Options{
		Timeout: lockWait,
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			old, err = plainfile.OpenFile(name, flag, mode)
			return old, err
		},
	})
	if err != nil {
		return err
	}
	file := SegmentFile{
		Segment: info.Number,
		File:    filepath.Base(info.Path),
		First:   info.First,
		Records: info.Records,
	}
	err = segment.Guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			if err := r.checkSegment(ctx, tx, info, tree); err != nil {
				return err
			}
			return rewriteSegment(tx, next, r.keep)
		})
	})
	if err == nil {
		file.Replaces, _, err = FileDigest(io.NewSectionReader(old, 0, math.MaxInt64))
	}
	if err = errors.Join(err, boltfile.Close(db, record.ErrDamaged)); err == nil {
		err = os.Chmod(next, sealedMode)
	}
	if err == nil {
		file.Digest, file.Size, err = digestOf(next)
	}
	if err != nil {
		_ = os.Remove(next) // it need not be there
		return err
	}
	r.files, r.next = append(r.files, file), append(r.next, next)
	return nil
}

// checkSegment makes the tree of a sealed segment again, from its edge and its lines, and compares it with the tree that the
// writer has in memory.
func (r *removal) checkSegment(ctx context.Context, tx *bbolt.Tx, sealed segment.Info, tree segment.Edge) error {
	before, err := segment.ReadEdgeBefore(tx, sealed.First)
	if err != nil {
		return err
	}
	end, w := sealed.First+sealed.Records, &segment.Walker{Edge: before.Clone(), Visit: func(record.Record) error { return nil }}
	for err == nil && w.Edge.Size < end {
		err = w.ReadOn(ctx, tx, end)
	}
	if err != nil {
		return err
	}
	own := segment.HashesIn(tx)
	if err := w.Edge.CheckBegins(tree, before.HashesWith(segment.SplitHashes(end, own, r.log.Reader))); err != nil {
		return fmt.Errorf("records %d to %d are not those that were written: %w", sealed.First, end-1, err)
	}
	return r.explainGaps(ctx, w)
}

// explainGaps looks for the records of the redactions in a segment. It fails if a line is missing without such a record.
func (r *removal) explainGaps(ctx context.Context, w *segment.Walker) error {
	q := Query{Filter: record.Filter{Event: format.EventRedacted}, Cursor: w.Edge.Size, Limit: redactedAtOnce}
	for more := len(w.Gone) > 0; more; {
		page, err := r.log.Query(ctx, q)
		for _, line := range page.Lines {
			err = errors.Join(err, w.Removed.AddRecord(line))
		}
		if err != nil {
			return err
		}
		q.Cursor, more = page.Next, page.More
	}
	return w.CheckGone()
}

// putOnRecord puts the removal on record, with the files that will be there.
func (r *removal) putOnRecord(ctx context.Context) error {
	var entries []record.Entry
	for _, one := range r.details(r.files) {
		details, err := stdjson.Marshal(one)
		if err != nil {
			return err
		}
		entries = append(entries, record.Entry{Kind: format.KindAdmin, Tenant: r.tenant, Caller: r.caller, Event: r.event, Details: details})
	}
	// The content may stand in the journal, too, which is filled and overwritten first, and in one that was
	// moved aside.
	if err := r.log.writer.runHeld(ctx, r.log.writer.eraseJournal); err != nil {
		return err
	}
	if err := journal.RemoveAside(r.log.writer.journalDir()); err != nil {
		return fmt.Errorf("a journal that was moved aside: %w", err)
	}
	// If this fails the record may be there all the same, so the new files stay
	// for finishLeft to judge. It must not be given up while it is in the queue:
	// then it could come after that judgement.
	return r.log.Append(context.WithoutCancel(ctx), entries) // together or not at all
}

// replaceSegments puts the new files in place. Here the content goes. Any part of it can be done again.
func (r *removal) replaceSegments(ctx context.Context) error {
	for i, file := range r.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.log.removals.replaceSegment(file.Segment, r.next[i]); err != nil {
			return err
		}
	}
	return nil
}

// replaceSegment puts a new file in the place of a segment, and takes its content out of the index.
func (r *removals) replaceSegment(number uint64, next string) error {
	delete(r.contents, number)
	path := segment.FilePath(r.log.data, number)
	// The disk gets the old file back, which takes milliseconds, when no process holds it any more: after the locks.
	old, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	err = r.log.index.Without(number, func() error { return r.log.replaceFile(number, next) })
	return errors.Join(err, old.Close(), plainfile.SyncDir(filepath.Dir(path)))
}

// replaceFile renames a file to a sealed segment's name, while no reader can open the segment. The file must hold the same meta
// and hashes, and be durable. The rename is not durable yet.
func (l *Log) replaceFile(number uint64, next string) error {
	q := &l.writer.queue
	q.ending.RLock() // once the log is closed, another process may have its directory
	defer q.ending.RUnlock()
	if q.closed {
		return ErrClosed
	}
	l.Opening.Lock()
	defer l.Opening.Unlock()
	all := l.SegmentFiles()
	for _, s := range all[:len(all)-1] { // the last one is the writer's
		if s.Number == number {
			return errors.Join(s.Close(), os.Rename(next, s.Path))
		}
	}
	return fmt.Errorf("segment %d: %w", number, segment.ErrNotFound)
}

// FileDigest returns the digest and the size of a segment file.
func FileDigest(r io.Reader) (digest string, size int64, err error) {
	sum := sha256.New()
	if size, err = io.Copy(sum, r); err != nil {
		return "", 0, fmt.Errorf("reading a segment: %w", err)
	}
	return format.DigestPrefix + hex.EncodeToString(sum.Sum(nil)), size, nil
}

// digestOf returns [FileDigest] of the file with a name.
func digestOf(name string) (digest string, size int64, err error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return "", 0, err
	}
	digest, size, err = FileDigest(f)
	return digest, size, errors.Join(err, f.Close())
}

// finishLeft finishes each removal of content that a crash or a failure interrupted after its record, and undoes a removal
// without a record. Open and each new removal call it first: a removal that failed half way, as with a full disk, left the
// segment with content that the next copy would keep. The caller holds the lock.
func (r *removals) finishLeft(ctx context.Context) error {
	segments := r.log.Segments()
	if len(segments) == 0 {
		return nil
	}
	dir := filepath.Dir(segments[0].Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		segment, size, ok := segment.ParseNextName(entry.Name())
		if !ok {
			continue
		}
		if err := r.finishOne(ctx, filepath.Join(dir, entry.Name()), segment, size); err != nil {
			return fmt.Errorf("%s is left of a redaction or retention: %w", entry.Name(), err)
		}
	}
	return nil
}

func (r *removals) finishOne(ctx context.Context, name string, segment, size uint64) error {
	digest, _, err := digestOf(name)
	if err != nil {
		return err
	}
	named, err := namesFile(ctx, r.log.Reader, size, segment, digest)
	if err != nil {
		return err
	}
	if named {
		if err := r.log.Rotate(ctx); err != nil { // step 3, which a crash may have come before
			return err
		}
		return r.replaceSegment(segment, name)
	}
	// Nothing is lost: the segment is whole, and no record says otherwise.
	return errors.Join(os.Remove(name), plainfile.SyncDir(filepath.Dir(name)))
}

// namesFile reports whether a record from a sequence on says that a segment is the
// file with this digest.
func namesFile(ctx context.Context, r *segment.Reader, from, segment uint64, digest string) (bool, error) {
	for record, err := range r.Records(ctx, from, r.Size()) {
		if err != nil {
			return false, err
		}
		for _, file := range newFiles(record.Line) {
			if file.Segment == segment && file.Digest == digest {
				return true, nil
			}
		}
	}
	return false, nil
}

// newFiles returns the files that a removal's record names as the new files of segments. No other
// record names a new file: a sealed segment's own file still has the removed content.
func newFiles(line []byte) []SegmentFile {
	s, err := record.Parse(line)
	if err != nil || s.Kind != format.KindAdmin {
		return nil
	}
	var d struct {
		File  SegmentFile   `json:"file"`
		Files []SegmentFile `json:"files"`
	}
	if s.Event != format.EventRedacted && s.Event != format.EventRetired || json.Unmarshal(s.Details, &d) != nil {
		return nil
	}
	if s.Event == format.EventRedacted {
		return []SegmentFile{d.File}
	}
	return d.Files
}

// rewriteBatch bounds the bytes of one transaction of a rewrite.
const rewriteBatch = 4 << 20

// rewriteSegment copies a sealed segment into a new file, each value as keep returns it;
// values for which keep returns nil are left out. Deleting values in place would not do: bbolt keeps their
// bytes in pages that it calls free. Only a new file never had them.
func rewriteSegment(from *bbolt.Tx, name string, keep keeping) (err error) {
	if err := plainfile.Remove(name); err != nil {
		return err
	}
	// Synced once, at the end: until the file has its name no reader opens it.
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true, PageSize: from.DB().Info().PageSize})
	if err != nil {
		return err
	}
	to.AllocSize = 1 << 20
	defer func() { err = errors.Join(err, to.Close()) }()
	err = from.ForEach(func(bucket []byte, b *bbolt.Bucket) error { return copyBucket(to, bucket, b, keep) })
	return errors.Join(err, to.Sync())
}

// copyBucket copies one bucket, in transactions of bounded size.
func copyBucket(to *bbolt.DB, bucket []byte, from *bbolt.Bucket, keep keeping) error {
	tx, err := to.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	into, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	size, c := 0, from.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if v == nil {
			return fmt.Errorf("bucket %q holds a bucket, %q, which no segment has", bucket, k)
		}
		if v = keep(bucket, k, v); v == nil {
			continue
		}
		into.FillPercent = 1
		if err := into.Put(k, v); err != nil {
			return err
		}
		if size += len(k) + len(v); size < rewriteBatch {
			continue
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		if tx, err = to.Begin(true); err != nil {
			return err
		}
		into, size = tx.Bucket(bucket), 0
	}
	return tx.Commit()
}
