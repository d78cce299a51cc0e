package decisionlog

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
type journaled struct {
	id     journal.ID
	number uint64
	// aside is the time, in Unix nanoseconds, that the names of its files are to get. If it is set, the segment has
	// what could be read of the journal.
	aside int64
}

// put says it in a segment.
func (j journaled) put(meta *bbolt.Bucket) error {
	if j == (journaled{}) {
		return errors.Join(
			meta.Put([]byte(format.MetaFormat), strconv.AppendInt(nil, format.Version, 10)),
			meta.Delete([]byte(format.MetaJournal)))
	}
	value := append(j.id[:], number(j.number)...)
	if j.aside != 0 {
		value = append(value, number(uint64(j.aside))...)
	}
	return errors.Join(
		meta.Put([]byte(format.MetaFormat), strconv.AppendInt(nil, format.VersionJournaled, 10)),
		meta.Put([]byte(format.MetaJournal), value))
}

// readJournaled reads what put wrote: the format of a segment, and its journal.
func readJournaled(version, value []byte) (j journaled, err error) {
	if string(version) != strconv.Itoa(format.VersionJournaled) {
		return j, nil
	}
	n := len(j.id)
	if len(value) != n+8 && len(value) != n+16 {
		return j, fmt.Errorf("%w: it does not say which journal it has records in", record.ErrDamaged)
	}
	copy(j.id[:], value)
	j.number, _ = readNumber(value[n : n+8])
	if len(value) > n+8 {
		at, _ := readNumber(value[n+8:])
		j.aside = int64(at)
	}
	return j, nil
}
