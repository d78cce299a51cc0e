package bundle

import (
	"io"
	"time"
)

const (
	// stretch is how long a load works before it rests. A decision passes through several goroutines, and each may wait so
	// long for a processor. Go would take the processor from the load only after 10 ms.
	stretch = 4 * time.Millisecond
	// longest is the stretch of a load that nobody else wanted a processor beside.
	longest = 4 * stretch
	// rest is the least time that lets another goroutine run. If none wants to, the system makes unused of it, or more.
	rest   = 50 * time.Microsecond
	unused = time.Millisecond
)

// pace has a load rest now and then, so that decisions need not wait for it. While the garbage collector runs on the
// other processors, there may be no other than the load's. A nil pace never rests.
type pace struct {
	since   time.Time // when the load rested last
	stretch time.Duration
	rests   int
}

func newPace() *pace { return &pace{since: time.Now(), stretch: stretch} }

// step is called where little work was done since the step before.
func (p *pace) step() {
	if p == nil {
		return
	}
	before := time.Now()
	if before.Sub(p.since) < p.stretch {
		return
	}
	time.Sleep(rest)
	p.since = time.Now()
	p.rests++
	if p.since.Sub(before) < unused {
		p.stretch = stretch
	} else {
		p.stretch = min(2*p.stretch, longest)
	}
}

// pacedReader reads a text in steps. Without it, a file would be hashed in one piece, and not even the garbage collector
// can interrupt the hash of a piece.
type pacedReader struct {
	text io.Reader
	pace *pace
}

func (r pacedReader) Read(p []byte) (int, error) {
	r.pace.step()
	return r.text.Read(p)
}
