package doctor

import "golang.org/x/sys/unix"

// minFree is enough for a log to begin: a segment, and the two files of the journal.
const minFree = 72 << 20

// volume is the file system below a directory.
type volume struct {
	doubt    string // its danger for a log; "" is none
	readOnly bool
	free     int64 // bytes for an ordinary user
}

// disk looks whether the file system below the data directory takes what is written, and keeps it.
func (x *exam) disk() {
	if x.data == "" {
		return
	}
	dir := existing(x.data)
	v, err := volumeOf(dir)
	before := len(x.Findings)
	if v.doubt != "" {
		x.Bites("disk", "put the data directory on a local disk", "%s is on %s", dir, v.doubt)
	}
	switch {
	case err != nil:
		x.Bites("disk", "do this as the user that serve runs as", "it cannot be looked at: %v", err)
	case v.readOnly:
		x.Bites("disk", "mount it for writing, or see in the system's log why that ended", "%s is mounted read-only, and nothing can be recorded", dir)
	case x.exists && unix.Access(x.data, unix.W_OK|unix.X_OK) != nil:
		x.Bites("disk", "chown it to the user that serve runs as, with mode 0700", "%s cannot be written to by this user", x.data)
	case v.free < minFree:
		x.Bites("disk", "free some, or give the data directory a disk of its own", "%d MiB are free: when it is full, nothing is answered in strict mode, and nothing recorded in best_effort", v.free>>20)
	case len(x.Findings) == before:
		x.OK("disk", "nothing is known against the file system of %s", dir)
	}
	if err := x.Config.DecisionLog.Retain.Doubtful(); err != nil {
		x.Wrong("disk", err)
	}
}
