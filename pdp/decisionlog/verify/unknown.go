package verify

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
)

// Nothing covers the content of other buckets of a segment, or under other keys of its meta bucket.
var (
	knownBuckets = []string{
		format.BucketMeta, format.BucketRecords, format.BucketHashes, format.BucketIDs,
		format.BucketCheckpoints, format.BucketCharges,
	}
	knownKeys = []string{
		format.MetaFormat, format.MetaSegment, format.MetaFirst, format.MetaEdge, format.MetaKey,
		format.MetaClean, format.MetaJournal, format.MetaHead, format.MetaKeys,
	}
)

// maxUnknown is how many unknown names a report has.
const maxUnknown = 20

// nameUnknown names the buckets and the meta keys of a segment that are not the log's.
func (c *checker) nameUnknown(f *pages.File, meta pages.Bucket, segment int64) error {
	top, err := f.Top()
	if err == nil {
		err = c.nameOthers(top, knownBuckets, segment, "bucket")
	}
	if err == nil {
		err = c.nameOthers(meta, knownKeys, segment, "meta key")
	}
	return err
}

func (c *checker) nameOthers(b pages.Bucket, known []string, segment int64, what string) error {
	all := b.Cursor()
	for len(c.report.Unknown) < maxUnknown {
		e, found, err := all.Next()
		if err != nil || !found {
			return err
		}
		if !slices.Contains(known, string(e.Key)) {
			file := fmt.Sprintf(format.SegmentName, segment)
			c.report.Unknown = append(c.report.Unknown, fmt.Sprintf("%s: %s %.40q", file, what, e.Key))
		}
	}
	return nil
}

// doubtUnknown reports the unknown names.
func (r *Report) doubtUnknown() {
	if len(r.Unknown) > 0 {
		r.doubt("anything about what stands in %s: the log has no such bucket or key, and nothing covers it", strings.Join(r.Unknown, ", "))
	}
}
