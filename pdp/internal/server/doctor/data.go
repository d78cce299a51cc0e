package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/finding"
)

// directory is the data directory.
type directory struct {
	path string // "" without one
	info fs.FileInfo
	err  error
}

func openDirectory(path string) (d directory) {
	if d.path = path; path != "" {
		d.info, d.err = os.Stat(path)
	}
	return d
}

// exists reports whether there is a directory to look into.
func (d directory) exists() bool { return d.info != nil && d.info.IsDir() }

// mark returns the state of the log's files, and whether a server runs on them.
func (d directory) mark() (files string, running bool) {
	if !d.exists() {
		return "", false
	}
	return segment.Mark(d.path)
}

// toBeMade reports whether serve is to make the directory.
func (d directory) toBeMade() bool { return errors.Is(d.err, fs.ErrNotExist) }

// Findings looks at the permissions.
func (d directory) Findings(context.Context) (found finding.List) {
	const check = "data"
	switch {
	case d.path == "":
		found.Bites(check, "add --data DIR", "there is no data directory: decisions are not recorded, there are no API keys, and what is signed does not verify after a restart")
		return found
	case d.toBeMade():
		parent := existing(d.path)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			found.Bites(check, "make it, with mode 0700, for the user that serve runs as", "%s does not exist, and cannot be made in %s: %v", d.path, parent, err)
		} else {
			found.OK(check, "%s does not exist yet; serve makes it", d.path)
		}
		return found
	case d.err != nil:
		found.Bites(check, "do this as the user that serve runs as", "it cannot be looked at: %v", d.err)
		return found
	case !d.exists():
		found.Bites(check, "give --data one, or a name that does not exist yet", "%s is no directory", d.path)
		return found
	}
	switch open := d.info.Mode().Perm(); { // no other user reaches the files in a directory that is closed
	case open&0o007 != 0:
		found.Bites(check, "chmod 700 "+d.path+", and rotate the keys if anybody may have read them", "%s is open to every user of this machine (mode %#o)", d.path, open)
	case open&0o070 != 0:
		found.Bites(check, "chmod 700 "+d.path+"; where an fsGroup of Kubernetes does this, give --data a directory below the volume, which serve makes itself",
			"%s is open to its group (mode %#o)", d.path, open)
	default:
		found.OK(check, "%s is its owner's alone", d.path)
	}
	if _, err := os.Lstat(filepath.Join(d.path, "log.key")); err == nil {
		found.OK(check, "nothing tells a copy of it from it: begin no second server with its log/, log.key, log.pub, approvals.db, capabilities.db or cluster.json")
	}
	return found
}

// existing returns the nearest directory upwards that there is.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
