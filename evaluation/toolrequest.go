package evaluation

import (
	"slices"
	"strconv"
	"time"
)

// ToolRequest is a request for a tool, as a gateway keeps it at the PDP until another caller of the gateway fulfils it. The gateway
// alone can read its text.
type ToolRequest struct {
	// Revision is that of the value which this one replaces, 0 if there is none.
	Revision uint64
	// Open says that it waits to be fulfilled, and For is how long it is kept.
	Open bool
	For  time.Duration
	Text string
}

// The bounds of a [ToolRequest].
const (
	ToolRequestText = 256 << 10
	ToolRequestFor  = 48 * time.Hour
)

var toolRequestMembers = []string{"revision", "open", "seconds", "text"}

// DecodeToolRequest reads the body by which a gateway keeps a request for a tool.
func DecodeToolRequest(body []byte, limits Limits) (ToolRequest, error) {
	return decode(body, limits, func(r *reader, o Object) (t ToolRequest) {
		for name := range o.Members {
			r.want(slices.Contains(toolRequestMembers, name), "none of "+joined(toolRequestMembers), name)
		}
		if text, given := r.member(o, []string{"revision"}, false, String, "a string"); given {
			n, err := strconv.ParseUint(text.Text(), 10, 64)
			r.want(err == nil && n > 0, "no revision; send the one of the last answer, or leave it out for a new one", "revision")
			t.Revision = n
		}
		open, _ := r.member(o, []string{"open"}, true, Bool, "true or false")
		seconds, _ := r.member(o, []string{"seconds"}, true, Number, "a number")
		n, whole := seconds.Scaled(0)
		r.want(whole && n > 0 && n <= int64(ToolRequestFor/time.Second), "no whole number of seconds up to those of two days", "seconds")
		t.Open, t.For, t.Text = open.True(), time.Duration(n)*time.Second, r.text(o, "text")
		r.want(t.Text != "" && len(t.Text) <= ToolRequestText, "empty, or longer than "+strconv.Itoa(ToolRequestText)+" bytes", "text")
		return t
	})
}
