package doctor

// volume is the file system below a directory.
type volume struct {
	doubt    string // its danger for a log; "" is none
	readOnly bool
}

// disk looks whether the file system below the data directory keeps what is written.
func (x *exam) disk() {
	if x.data == "" {
		return
	}
	dir := existing(x.data)
	v, err := volumeOf(dir)
	switch {
	case err != nil:
		x.Bites("disk", "do this as the user that serve runs as", "it cannot be looked at: %v", err)
	case v.readOnly:
		x.Bites("disk", "mount it for writing, or see in the system's log why that ended", "%s is mounted read-only, and nothing can be recorded", dir)
	case v.doubt != "":
		x.Bites("disk", "put the data directory on a local disk", "%s is on %s", dir, v.doubt)
	default:
		x.OK("disk", "nothing is known against the file system of %s", dir)
	}
}
