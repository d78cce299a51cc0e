package cli

import (
	"fmt"
	"io"
	"time"
)

// Progress shows on a terminal how far a command is, in one line that is written again and again.
type Progress struct {
	to    io.Writer // nil where people see none
	what  string
	shown time.Time
}

// progressEvery is how often the line is written, at most.
const progressEvery = 200 * time.Millisecond

// Progress counts something, by its plural.
func (s Streams) Progress(what string) *Progress {
	p := &Progress{what: what}
	if IsTerminal(s.Err) {
		p.to = s.Err
	}
	return p
}

// At says how many there are now.
func (p *Progress) At(n int64) {
	if now := time.Now(); p.to != nil && now.Sub(p.shown) >= progressEvery {
		p.shown = now
		_, _ = fmt.Fprintf(p.to, "\r%d %s", n, p.what)
	}
}

// End takes the line away.
func (p *Progress) End() {
	if p.to != nil && !p.shown.IsZero() {
		_, _ = fmt.Fprint(p.to, "\r\033[K")
	}
}
