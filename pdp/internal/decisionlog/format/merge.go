package format

// A merge is exports of the form "log" in one file. Each line of each export is in it once, byte for byte, and the
// lines of one export stand in their order: without the lines of the merge, and without those of the other exports, an
// export is the file that it was, and verifies as that.
//
//	{"export":"merge","format":1,"parts":2}
//	{"export":"part","part":0}
//	{"export":"begin",…}
//	{"export":"part","part":1}
//	{"export":"begin",…}
//	{"sequence":0,…}
//	{"sequence":1,…}
//	{"export":"part","part":0}
//	{"sequence":0,…}
//	{"export":"end",…}
//	{"export":"part","part":1}
//	{"export":"end",…}
//	{"export":"merged","digest":"…"}
//
// "merge" is the first line. A line "part" says of which export the lines below it are, up to the next such line. The
// exports are counted from 0, in the order of their origins, then of their sizes, then of their first lines, of which
// no two are equal. First come the first lines of all. The records stand in the order of their times, at one time in
// that of origins, then of sequences, then of parts. A line that is no record goes with the line before it of its
// export. So the exports alone make the order, and a merge of the same exports is the same file. "merged" is the last
// line, with the SHA-256, as 64 hexadecimal digits, of every byte before it.
//
// A step that another replica recorded again, because the log that was to have it was lost, may stand in two logs with
// one id. Both lines stay: the proof of each log needs its own. export.Reader marks the second.
//
// The format grows as that of an export does.
const (
	// MergeVersion is the number of this format.
	MergeVersion = 1
	// MaxParts is how many exports a merge has at most.
	MaxParts = 1000

	// The lines of the merge.
	LineMerge  = "merge"
	LinePart   = "part"
	LineMerged = "merged"
)
