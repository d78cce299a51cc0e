package doctor

import (
	"fmt"
	"os"
	"time"
)

// volume is the file system below a directory.
type volume struct {
	kind     string // as mount names it, or its number
	doubt    string // its danger for a log; "" is none
	readOnly bool
	free     int64 // bytes for an ordinary user
}

const (
	// minFree is enough for a log to go on for a while: two segments, beside a journal that takes an eighth of it.
	minFree = 160 << 20
	// slowSync is when the disk bounds the answers, and not the work.
	slowSync = 50 * time.Millisecond
)

// disk looks at the file system below the data directory.
func (x *exam) disk() {
	if x.data == "" {
		return
	}
	dir := existing(x.data)
	v, err := volumeOf(dir)
	if err != nil {
		x.Bites("disk", "do this as the user that serve runs as", "it cannot be looked at: %v", err)
		return
	}
	if v.doubt != "" {
		x.Bites("disk", "put the data directory on a local disk", "%s is on %s: %s", dir, v.kind, v.doubt)
	}
	if v.readOnly {
		x.Bites("disk", "mount it for writing, or see in the system's log why that ended", "%s is mounted read-only, and nothing can be recorded", dir)
	}
	keep := x.Config.DecisionLog.Retain
	wanted := keep.Bytes - x.used()
	switch free := size(v.free); {
	case v.free < minFree:
		x.Bites("disk", "free at least "+size(minFree)+", or give the data directory a disk of its own", "%s are free: when it is full, nothing is answered in strict mode, and nothing recorded in best_effort", free)
	case v.free < wanted:
		x.Bites("disk", "free as much, or lower it", "%s are free, and the log may take %s more by decision_log.retain.bytes", free, size(wanted))
	case keep.Age == 0 && keep.Bytes == 0:
		x.OK("disk", "%s are free on %s; nothing is dropped without decision_log.retain", free, v.kind)
	default:
		x.OK("disk", "%s are free on %s", free, v.kind)
	}
	if err := keep.Doubtful(); err != nil {
		x.Wrong("disk", err)
	}
	if x.exists && !v.readOnly {
		x.sync()
	}
}

// used is the size of the log now.
func (x *exam) used() (bytes int64) {
	if x.reader != nil {
		for _, s := range x.reader.Segments() {
			bytes += s.Size
		}
	}
	return bytes
}

// size is a number of bytes for people.
func size(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	n := 0
	for ; bytes >= 1024 && n < len(units)-1; n++ {
		bytes /= 1024
	}
	return fmt.Sprintf("%d %s", bytes, units[n])
}

// sync writes as the log does: a page, and then a sync, some times.
func (x *exam) sync() {
	f, err := os.CreateTemp(x.data, ".doctor-*")
	if err != nil {
		x.Bites("disk", "see to the disk and to the permissions of the data directory", "nothing can be written: %v", err)
		return
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	const times = 5
	began := time.Now()
	for range times {
		if _, err = f.Write(make([]byte, 4<<10)); err == nil {
			err = f.Sync()
		}
		if err != nil {
			x.Bites("disk", "see to the disk; nothing is answered in strict mode without it", "what is written does not get to the disk: %v", err)
			return
		}
	}
	each := (time.Since(began) / times).Round(10 * time.Microsecond)
	if each >= slowSync {
		x.Bites("disk", "give the data directory a faster disk; --log-mode best_effort does not wait, and can lose records", "a sync takes %v, and every answer in strict mode waits for one", each)
		return
	}
	x.OK("disk", "a sync takes %v", each)
}
