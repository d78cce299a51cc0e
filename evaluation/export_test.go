package evaluation

// What reads a body behind the entry points, and what makes requests of what was read.
var (
	Scan          = scan
	ParseStrictly = parseStrictly
	AuthZENOf     = authzen
	NativeOf      = native
	BatchOf       = batch
)

// The places where a body may stand.
const (
	InBody      = inBody
	InArguments = inArguments
)

// SharedText is the size of a body up to which its texts are parts of one.
const SharedText = sharedText
