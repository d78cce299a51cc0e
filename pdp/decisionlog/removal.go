package decisionlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/plainfile"
)

// removal is content on its way out, in the steps above.
type removal struct {
	log   *Log
	event string
	// details make the admin record's, given the new files.
	details func([]SegmentFile) any
	tenant  string
	caller  string
	files   []SegmentFile
	next    []string // the new files' paths, one for each
}

// steps are what a removal does, in order. A crash is a list that ends early.
func (r *removal) steps(segments []Segment, keep func(bucket, key, value []byte) []byte) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error { return r.write(ctx, segments, keep) },
		r.record,
		r.log.Rotate,
		r.replace,
	}
}

func (r *removal) run(ctx context.Context, segments []Segment, keep func(bucket, key, value []byte) []byte) error {
	for _, step := range r.steps(segments, keep) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// write makes the new files. They are of no use before the record, so a failure
// takes them away again.
func (r *removal) write(ctx context.Context, segments []Segment, keep func(bucket, key, value []byte) []byte) (err error) {
	defer func() {
		if err != nil {
			for _, name := range r.next {
				err = errors.Join(err, os.Remove(name))
			}
		}
	}()
	for _, segment := range segments {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.writeOne(segment, keep); err != nil {
			return fmt.Errorf("%s cannot be written anew: %w", filepath.Base(segment.Path), err)
		}
	}
	return syncDir(filepath.Dir(segments[0].Path))
}

func (r *removal) writeOne(segment Segment, keep func(bucket, key, value []byte) []byte) error {
	name := fmt.Sprintf("%s.%d%s", segment.Path, r.log.Size(), nextSuffix)
	if err := r.log.retireSealed(segment.Number); err != nil {
		return err
	}
	db, err := openFile(segment.Path, boltfile.ToRead, bbolt.Options{Timeout: lockWait})
	if err != nil {
		return err
	}
	r.next = append(r.next, name)
	err = guard(func() error { return rewrite(db, name, keep) })
	if err := errors.Join(err, boltfile.Close(db, ErrDamaged)); err != nil {
		return err
	}
	if err := os.Chmod(name, 0o400); err != nil {
		return err
	}
	file, err := fileOf(segment, name)
	r.files = append(r.files, file)
	return err
}

// record puts on record what is about to go, and which files will be there.
func (r *removal) record(ctx context.Context) error {
	details, err := json.Marshal(r.details(r.files))
	if err != nil {
		return err
	}
	entry := Entry{Kind: KindAdmin, Tenant: r.tenant, Caller: r.caller, Event: r.event, Details: details}
	// Where this fails the record may be there all the same, so the new files stay
	// for finishAll to judge. It must not be given up while it is in the queue:
	// then it could come after that judgement.
	_, err = r.log.Append(context.WithoutCancel(ctx), []Entry{entry})
	return err
}

// replace is the moment the content goes. Any part of it can be done again.
func (r *removal) replace(ctx context.Context) error {
	for i, file := range r.files {
		if err := r.log.exchange(ctx, file.Segment, r.next[i]); err != nil {
			return err
		}
	}
	return nil
}

// exchange replaces a segment, and no index keeps what was in it. It must not be
// given up while it is in the queue: an index could be made before it happens.
func (l *Log) exchange(ctx context.Context, segment uint64, next string) error {
	ctx = context.WithoutCancel(ctx)
	delete(l.removing.contents, segment)
	return l.index.Without(segment, func() error { return l.Replace(ctx, segment, next) })
}

// fileOf describes a file of a segment.
func fileOf(s Segment, name string) (SegmentFile, error) {
	digest, size, err := digestFile(name)
	return SegmentFile{
		Segment: s.Number,
		File:    filepath.Base(s.Path),
		First:   s.First,
		Records: s.Records,
		Size:    size,
		Digest:  digest,
	}, err
}

func digestFile(name string) (digest string, size int64, err error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return "", 0, err
	}
	digest, size, err = FileDigest(f)
	return digest, size, errors.Join(err, f.Close())
}
