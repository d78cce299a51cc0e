package doctor

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"policy-service/pdp/server"
)

// volume is the file system below a directory.
type volume struct {
	kind        string // as mount names it, or its number
	doubt       string // what is wrong with it for a log; "" is nothing
	readOnly    bool
	free        int64 // bytes for an ordinary user
	files       int64 // inodes that there are; 0 where there is no such limit
	filesUnused int64
}

const (
	// minFree is what a log needs to go on for a while: two segments, beside a journal that takes an eighth of it.
	minFree = 160 << 20
	// minFiles is what it makes of files in months: one a segment, one a changed policy.
	minFiles = 1000
	// slowSync is a sync that every strict answer feels.
	slowSync = 50 * time.Millisecond
	// fullWithin is how soon a disk that fills up is too soon.
	fullWithin = 14 * 24 * time.Hour
)

// disk is whether records will have a place, and stay there.
func (x *exam) disk() {
	if x.data == "" {
		return
	}
	dir := existing(x.data)
	v, err := volumeOf(dir)
	if err != nil {
		x.bites("disk", fmt.Sprintf("it cannot be looked at: %v", err), "do this as the user that serve runs as")
		return
	}
	if v.doubt != "" {
		x.bites("disk", fmt.Sprintf("%s is on %s: %s", dir, v.kind, v.doubt), "put the data directory on a local disk")
	} else {
		x.ok("disk", fmt.Sprintf("%s is on %s", dir, v.kind))
	}
	if v.readOnly {
		x.bites("disk", dir+" is mounted read-only, and nothing can be recorded", "mount it for writing, or see in the system's log why that ended")
	}
	x.findings = append(x.findings, space(v, x.used(), x.growth(), x.Config.DecisionLog.Retain))
	if err := x.Config.DecisionLog.Retain.Doubtful(); err != nil {
		x.wrong("disk", err)
	}
	if bytes := x.Config.DecisionLog.Retain.Bytes; bytes > 0 {
		x.ok("disk", Lasts(bytes, x.record()))
	}
	if v.files > 0 && v.filesUnused < minFiles {
		x.bites("disk", fmt.Sprintf("%d files can still be made on it, and the log makes one for each segment and each changed policy", v.filesUnused), "remove some, or make the file system anew with more inodes")
	}
	if x.exists && !v.readOnly {
		x.sync()
	}
}

// used is what the log takes now.
func (x *exam) used() (bytes int64) {
	if x.reader == nil {
		return 0
	}
	for _, s := range x.reader.Segments() {
		bytes += s.Size
	}
	return bytes
}

// lately is what the last segments have: so many bytes, and so many records since a time.
func (x *exam) lately() (bytes int64, records uint64, since time.Time) {
	if x.reader == nil {
		return 0, 0, since
	}
	all := x.reader.Segments()
	for _, s := range slices.Backward(all[max(0, len(all)-8):]) {
		first := recorded(x.reader, s.First)
		if first.IsZero() {
			break // retention took its content, and its size says nothing any more
		}
		since, bytes, records = first, bytes+s.Size, records+s.Records
	}
	return bytes, records, since
}

// growth is how many bytes the log took a day, lately: 0 where there is too little
// of it to say.
func (x *exam) growth() float64 {
	bytes, _, since := x.lately()
	if since.IsZero() || x.newest.Sub(since) < time.Hour {
		return 0
	}
	return float64(bytes) / (x.newest.Sub(since).Hours() / 24)
}

const (
	// PersonRate is the default of limits.rate of an MCP gateway, in questions a second.
	PersonRate = 50
	// CallRecord is the size on disk of the record of a call behind an MCP gateway, with one short argument.
	CallRecord = 1200
	// fewRecords is below what an average means anything: a new segment has room for some thousand.
	fewRecords = 10_000
)

// record is the size of a record of this log on disk, [CallRecord] where there are too few to say.
func (x *exam) record() float64 {
	bytes, records, _ := x.lately()
	if records < fewRecords {
		return CallRecord
	}
	return float64(bytes) / float64(records)
}

// Lasts says for how many days so many bytes of a decision log last if one person behind an MCP gateway does their worst.
func Lasts(bytes int64, record float64) string {
	days := float64(bytes) / (PersonRate * record * 24 * 60 * 60)
	digits := "%.2g"
	if days >= 10 {
		digits = "%.0f"
	}
	return fmt.Sprintf("decision_log.retain.bytes (%s) lasts for "+digits+" days at the rate of one person behind an MCP gateway: %d a second (limits.rate), %.0f bytes a record",
		size(float64(bytes)), days, PersonRate, record)
}

// Daily is how much of a decision log one person behind an MCP gateway fills in a day who asks so often a second.
func Daily(rate float64) string { return size(rate * CallRecord * 24 * 60 * 60) }

// space holds what is free against what the log will want, which is what retention
// lets it have, or more every day.
func space(v volume, used int64, daily float64, keep server.RetainConfig) Finding {
	free := size(float64(v.free)) + " are free"
	wants, why := wanted(used, daily, keep)
	switch left := float64(v.free) / daily; {
	case v.free < minFree:
		return Finding{"disk", true, free + ": when it is full, nothing is answered in strict mode, and nothing recorded in best_effort", "free at least " + size(minFree) + ", or give the data directory a disk of its own"}
	case float64(v.free) < wants:
		return Finding{"disk", true, free + ", and the log wants " + size(wants) + " more before anything of it is dropped: " + why, "free as much, or lower decision_log.retain"}
	case wants > 0:
		return Finding{Check: "disk", Message: free + ", and the log wants " + size(wants) + " more: " + why}
	case keep != (server.RetainConfig{}):
		return Finding{Check: "disk", Message: free + "; decision_log.retain bounds the log"}
	case daily == 0:
		return Finding{Check: "disk", Message: free + "; nothing is dropped without decision_log.retain, and there is too little yet to say how fast the log grows"}
	case left < fullWithin.Hours()/24:
		return Finding{"disk", true, fmt.Sprintf("%s, and at %s a day it is full in %.0f days: nothing is answered then in strict mode", free, size(daily), math.Floor(left)), "set decision_log.retain, or give the data directory more room"}
	default:
		return Finding{Check: "disk", Message: fmt.Sprintf("%s, which at %s a day lasts for %.0f days", free, size(daily), math.Floor(left))}
	}
}

// wanted is how much the log may still grow before retention drops anything.
func wanted(used int64, daily float64, keep server.RetainConfig) (bytes float64, why string) {
	byAge, byBytes := math.Inf(1), math.Inf(1)
	if keep.Age > 0 && daily > 0 {
		byAge = daily * keep.Age.Hours() / 24
	}
	if keep.Bytes > 0 {
		byBytes = float64(keep.Bytes)
	}
	switch most := min(byAge, byBytes); {
	case math.IsInf(most, 1):
		return 0, ""
	case byAge < byBytes:
		return max(0, most-float64(used)), fmt.Sprintf("decision_log.retain.age is %s, at %s a day", keep.Age, size(daily))
	default:
		return max(0, most-float64(used)), "decision_log.retain.bytes is " + size(float64(keep.Bytes))
	}
}

// size is a number of bytes for people.
func size(bytes float64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	n := 0
	for ; bytes >= 1024 && n < len(units)-1; n++ {
		bytes /= 1024
	}
	return fmt.Sprintf("%.0f %s", math.Floor(bytes), units[n])
}

// sync writes as the log does: a page, and then a sync, some times.
func (x *exam) sync() {
	f, err := os.CreateTemp(x.data, ".doctor-*")
	if err != nil {
		x.bites("disk", fmt.Sprintf("nothing can be written: %v", err), "see to the disk and to the permissions of the data directory")
		return
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	var took []time.Duration
	for range 5 {
		began := time.Now()
		if _, err = f.Write(make([]byte, 4<<10)); err == nil {
			err = f.Sync()
		}
		if err != nil {
			x.bites("disk", fmt.Sprintf("what is written does not get to the disk: %v", err), "see to the disk; nothing is answered in strict mode without it")
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	x.findings = append(x.findings, syncTime(took[len(took)/2]))
}

func syncTime(median time.Duration) Finding {
	median = median.Round(10 * time.Microsecond)
	if median >= slowSync {
		return Finding{"disk", true, fmt.Sprintf("a sync takes %v, and every answer in strict mode waits for one", median), "give the data directory a faster disk; --log-mode best_effort does not wait, and can lose records"}
	}
	return Finding{Check: "disk", Message: fmt.Sprintf("a sync takes %v", median)}
}
