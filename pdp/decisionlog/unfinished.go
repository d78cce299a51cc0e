package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
)

// finishRemovals is for Open: it finishes each removal of content that a crash
// interrupted after its record, and undoes it where there is no record.
func (l *Log) finishRemovals(ctx context.Context) error {
	l.removing.Lock()
	defer l.removing.Unlock()
	return l.finishAll(ctx)
}

// finishAll also comes before each new removal: one that failed half way, as with
// a full disk, left the segment with content that the next copy would keep.
func (l *Log) finishAll(ctx context.Context) error {
	segments := l.Segments()
	if len(segments) == 0 {
		return nil
	}
	dir := filepath.Dir(segments[0].Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		segment, size, ok := isNext(entry.Name())
		if !ok {
			continue
		}
		if err := l.finishRemoval(ctx, filepath.Join(dir, entry.Name()), segment, size); err != nil {
			return fmt.Errorf("%s is left of a redaction or retention: %w", entry.Name(), err)
		}
	}
	return nil
}

func (l *Log) finishRemoval(ctx context.Context, name string, segment, size uint64) error {
	digest, _, err := digestFile(name)
	if err != nil {
		return err
	}
	named, err := l.names(ctx, size, segment, digest)
	if err != nil {
		return err
	}
	if named {
		if err := l.Rotate(ctx); err != nil { // step 3, which a crash may have come before
			return err
		}
		return l.exchange(ctx, segment, name)
	}
	// Nothing is lost: the segment is whole, and no record says otherwise.
	return errors.Join(os.Remove(name), syncDir(filepath.Dir(name)))
}

// names reports whether a record from a sequence on says that a segment is the
// file with this digest.
func (l *Log) names(ctx context.Context, from, segment uint64, digest string) (bool, error) {
	if from > l.Size() {
		return false, nil
	}
	for record, err := range l.Records(ctx, from, l.Size()) {
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

// newFiles are the files that a record says there are from now on.
func newFiles(line []byte) []SegmentFile {
	s, err := Parse(line)
	if err != nil || s.Kind != KindAdmin {
		return nil
	}
	var d struct {
		File  SegmentFile   `json:"file"`
		Files []SegmentFile `json:"files"`
	}
	if s.Event != EventRedacted && s.Event != EventRetired || json.Unmarshal(s.Details, &d) != nil {
		return nil
	}
	if s.Event == EventRedacted {
		return []SegmentFile{d.File}
	}
	return d.Files
}
