package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The dangers of file systems for a log.
const (
	inMemory  = "it is memory, and the log is gone when the machine restarts"
	layered   = "it is a container's own layer, and the log is gone with the container"
	remote    = "locks, memory maps and syncs over a network do not always hold what they promise, and the log rests on all three"
	elsewhere = "whether locks, memory maps and syncs hold what they promise depends on the program behind it, and the log rests on all three"
)

// doubts are the file systems with a danger, by the number that statfs gives.
var doubts = map[int64]string{
	unix.TMPFS_MAGIC:           "tmpfs: " + inMemory,
	unix.RAMFS_MAGIC:           "ramfs: " + inMemory,
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs: " + layered,
	unix.NFS_SUPER_MAGIC:       "nfs: " + remote,
	unix.SMB_SUPER_MAGIC:       "smb: " + remote,
	unix.SMB2_SUPER_MAGIC:      "smb: " + remote,
	unix.CIFS_SUPER_MAGIC:      "cifs: " + remote,
	unix.CEPH_SUPER_MAGIC:      "ceph: " + remote,
	unix.AFS_SUPER_MAGIC:       "afs: " + remote,
	unix.V9FS_MAGIC:            "9p: " + elsewhere,
	unix.FUSE_SUPER_MAGIC:      "fuse: " + elsewhere,
}

func volumeOf(dir string) (volume, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return volume{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return volume{doubts[int64(uint32(s.Type))], s.Flags&unix.ST_RDONLY != 0, int64(s.Bavail) * int64(s.Bsize)}, nil
}
