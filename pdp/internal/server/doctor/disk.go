package doctor

import (
	"context"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/finding"
)

// minFree is enough for a log to begin: a segment, and the two files of the journal.
const minFree = 72 << 20

// volume is the file system below a directory.
type volume struct {
	doubt    string // its danger for a log; "" is none
	readOnly bool
	free     int64 // bytes for an ordinary user
}

// disk is the file system below the data directory.
type disk struct {
	data directory
	said finding.List // of the configuration
}

// Findings looks whether the file system takes what is written, and keeps it.
func (d disk) Findings(context.Context) (found finding.List) {
	const check = "disk"
	if d.data.path == "" {
		return nil
	}
	dir := existing(d.data.path)
	v, err := volumeOf(dir)
	if v.doubt != "" {
		found.Bites(check, "put the data directory on a local disk", "%s is on %s", dir, v.doubt)
	}
	switch {
	case err != nil:
		found.Bites(check, "do this as the user that serve runs as", "it cannot be looked at: %v", err)
	case v.readOnly:
		found.Bites(check, "mount it for writing, or see in the system's log why that ended", "%s is mounted read-only, and nothing can be recorded", dir)
	case d.data.exists() && unix.Access(d.data.path, unix.W_OK|unix.X_OK) != nil:
		found.Bites(check, "chown it to the user that serve runs as, with mode 0700", "%s cannot be written to by this user", d.data.path)
	case v.free < minFree:
		found.Bites(check, "free some, or give the data directory a disk of its own", "%d MiB are free: when it is full, nothing is answered in strict mode, and nothing recorded in best_effort", v.free>>20)
	case len(found) == 0:
		found.OK(check, "nothing is known against the file system of %s", dir)
	}
	return append(found, of(check, d.said)...)
}
