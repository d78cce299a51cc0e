package segment

import (
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
)

// journaled names the journal that may have records which the log's segment has not, and the last frame that the
// segment has. The zero value is none.
type Journaled struct {
	ID     journal.ID
	Number uint64
	// aside is the time, in Unix nanoseconds, that the names of its files are to get. If it is set, the segment has
	// what could be read of the journal.
	Aside int64
}

// put says it in a segment.
func (j Journaled) Put(meta *bbolt.Bucket) error {
	if j == (Journaled{}) {
		return errors.Join(
			meta.Put([]byte(format.MetaFormat), strconv.AppendInt(nil, format.Version, 10)),
			meta.Delete([]byte(format.MetaJournal)))
	}
	value := append(j.ID[:], Number(j.Number)...)
	if j.Aside != 0 {
		value = append(value, Number(uint64(j.Aside))...)
	}
	return errors.Join(
		meta.Put([]byte(format.MetaFormat), strconv.AppendInt(nil, format.VersionJournaled, 10)),
		meta.Put([]byte(format.MetaJournal), value))
}

// readJournaled reads what put wrote: the format of a segment, and its journal.
func ReadJournaled(version, value []byte) (j Journaled, err error) {
	if string(version) != strconv.Itoa(format.VersionJournaled) {
		return j, nil
	}
	n := len(j.ID)
	if len(value) != n+8 && len(value) != n+16 {
		return j, fmt.Errorf("%w: it does not say which journal it has records in", record.ErrDamaged)
	}
	copy(j.ID[:], value)
	j.Number, _ = ReadNumber(value[n : n+8])
	if len(value) > n+8 {
		at, _ := ReadNumber(value[n+8:])
		j.Aside = int64(at)
	}
	return j, nil
}
