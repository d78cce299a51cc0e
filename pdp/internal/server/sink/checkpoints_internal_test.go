package sink

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Where nobody takes checkpoints for a while the last one is written out all the same: it
// is that of the stop, and says all that the others said.
func TestTheLastCheckpointIsWrittenOut(t *testing.T) {
	t.Parallel()
	p := &Checkpoints{notes: make(chan []byte, maxUnpublished), log: slog.New(slog.DiscardHandler)}
	const made = 3 * maxUnpublished
	for n := range made {
		p.Take(fmt.Appendln(nil, n))
	}
	close(p.notes)
	var out bytes.Buffer
	p.write(&out)
	if got := strings.Fields(out.String()); len(got) != maxUnpublished || got[len(got)-1] != fmt.Sprint(made-1) {
		t.Errorf("written out are %v", got)
	}
}
