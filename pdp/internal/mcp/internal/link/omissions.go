package link

import (
	"log/slog"

	"policy-service/pdp/internal/visible"
)

// Omissions counts the items of a listing that are left out, by reason: a server that lists thousands of them must not fill the
// log.
type Omissions struct {
	counts     map[string]int
	first, why string
}

// Add counts an item. The log has the first name of all items, and the first cause, if there is one.
func (o *Omissions) Add(reason, name string, cause error) {
	if o.counts == nil {
		o.counts = map[string]int{}
	}
	if o.counts[reason]++; o.first == "" {
		o.first = logged(name)
	}
	if o.why == "" && cause != nil {
		o.why = logged(cause.Error())
	}
}

// Log writes one line about all items that are left out of a listing.
func (o *Omissions) Log(log *slog.Logger, server, method string) {
	if o.counts != nil {
		log.Warn("items of a list are left out", slog.Group("", "server", server, "method", method), "items", o.counts, "first", o.first, "why", o.why)
	}
}

// logged returns a text of a server on one line, short enough for lines that are counted instead of repeated.
func logged(text string) string { return shortened(visible.Text(text), 256) }
