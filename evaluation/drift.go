package evaluation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Drift is a difference between a tool and its locked definition, as a gateway reports it.
type Drift struct {
	// Server is the gateway's name of the server, and Tool the server's name of the tool, as it was locked. Without a
	// tool it is about the server as a whole.
	Server string      `json:"server"`
	Tool   string      `json:"tool,omitzero"`
	Change DriftChange `json:"change"`
	// With is the other tool: the name that the tool has now, or whose definition it has.
	With string `json:"with,omitzero"`
	// Parts are the parts of the definition that changed, such as description.
	Parts []string `json:"parts,omitzero"`
	// Locked and Found are digests of the locked and of the present definition. A new tool has no locked one, and a tool
	// that is gone no present one.
	Locked string `json:"locked,omitzero"`
	Found  string `json:"found,omitzero"`
}

// DriftChange is the kind of a [Drift].
type DriftChange string

// The kinds of a [Drift].
const (
	DriftNew          DriftChange = "new"
	DriftGone         DriftChange = "gone"
	DriftRenamed      DriftChange = "renamed"
	DriftSwapped      DriftChange = "swapped" // it has the definition that another tool had
	DriftChanged      DriftChange = "changed"
	DriftInstructions DriftChange = "instructions"
	DriftMore         DriftChange = "more" // of a server: there is more than the gateway has reported
)

// DriftChanges are all of them.
func DriftChanges() []DriftChange {
	return []DriftChange{DriftNew, DriftGone, DriftRenamed, DriftSwapped, DriftChanged, DriftInstructions, DriftMore}
}

// The bounds of a [Drift], of texts in bytes. Records last, and strangers choose the names of tools.
const (
	DriftServer = 64
	DriftTool   = 256
	DriftDigest = 128
	DriftPart   = 64
	DriftParts  = 32
)

// DecodeDrift reads the body of a report of a drift.
func DecodeDrift(body []byte, limits Limits) (Drift, error) {
	return decode(body, limits, func(r *reader, o Object) Drift {
		for name := range o.Members {
			r.want(slices.Contains(driftMembers, name), "none of "+joined(driftMembers), name)
		}
		d := Drift{
			Server: r.shown(o, true, DriftServer, "server"),
			Tool:   r.shown(o, false, DriftTool, "tool"),
			Change: DriftChange(r.text(o, "change")),
			With:   r.shown(o, false, DriftTool, "with"),
			Parts:  r.parts(o),
			Locked: r.digest(o, "locked"),
			Found:  r.digest(o, "found"),
		}
		r.want(d.Server != "", "empty; it is the name of a server", "server")
		r.want(slices.Contains(DriftChanges(), d.Change), "none of "+joined(DriftChanges()), "change")
		r.want(d.Tool != "" || slices.Contains(driftsOfServers, d.Change),
			"missing or empty; only "+joined(driftsOfServers)+" may be of no tool", "tool")
		r.want(d.Tool == "" || d.Change != DriftInstructions, "instructions are of no tool; leave it out", "tool")
		return d
	})
}

var (
	driftMembers    = []string{"server", "tool", "change", "with", "parts", "locked", "found"}
	driftsOfServers = []DriftChange{DriftNew, DriftGone, DriftInstructions, DriftMore}
)

func joined[T ~string](all []T) string {
	texts := make([]string, len(all))
	for n, one := range all {
		texts[n] = string(one)
	}
	return strings.Join(texts, ", ")
}

func (r *reader) parts(o Object) (parts []string) {
	all, ok := r.member(o, []string{"parts"}, false, Array, "an array of strings")
	if !ok || !r.want(all.Len() <= DriftParts, fmt.Sprintf("more than %d", DriftParts), "parts") {
		return nil
	}
	for n, v := range all.Elements {
		at := []string{"parts", strconv.Itoa(n)}
		if r.want(v.Kind() == String, "not a string", at...) {
			parts = append(parts, r.visible(v.Text(), DriftPart, at...))
		}
	}
	return parts
}

func (r *reader) digest(o Object, name string) string {
	text := r.shown(o, false, DriftDigest, name)
	allowed := func(c rune) bool {
		return c <= unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune(":-_", c))
	}
	r.want(!strings.ContainsFunc(text, func(c rune) bool { return !allowed(c) }), "this is no digest, which has only letters, digits, :, - and _", name)
	return text
}

// shown is a text for a screen.
func (r *reader) shown(o Object, required bool, most int, name string) string {
	v, _ := r.member(o, []string{name}, required, String, "a string")
	return r.visible(v.Text(), most, name)
}

func (r *reader) visible(text string, most int, at ...string) string {
	r.want(len(text) <= most, fmt.Sprintf("more than %d bytes", most), at...)
	r.want(!strings.ContainsFunc(text, unseen), `has characters that cannot be seen; write them as \u and four digits`, at...)
	return text
}

// unseen reports whether a rune leaves no ink, or looks like another. Some of them are letters and symbols to Unicode:
// fillers of Hangul, variation selectors, and the empty pattern of Braille.
func unseen(c rune) bool {
	return !unicode.IsPrint(c) || unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || c == 0x2800
}
