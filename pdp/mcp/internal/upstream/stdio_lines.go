package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"

	"policy-service/pdp/mcp/internal/rpc"
)

// longLine is the error of a line that is longer than it may be. The lines after it can be read.
type longLine struct {
	size int
	head lineHead
}

func (e *longLine) Error() string {
	return fmt.Sprintf("a line of %d bytes is longer than max_result", e.size)
}

// errEndless is of a line that goes on even so.
var errEndless = errors.New("a line does not end")

// skipFactor is how many times longer than it may be a line is read to find its end.
const skipFactor = 8

// nextLine reads a line of at most so many bytes, and no more of a longer one into memory. A last line without an end is
// none: its writer was cut off.
func nextLine(in *bufio.Reader, most int) ([]byte, error) {
	var line bytes.Buffer
	var long longLine
	for {
		part, err := in.ReadSlice('\n')
		before := long.size
		if long.size += len(part); long.size <= most {
			line.Write(part)
		} else {
			if before <= most {
				long.head.read(line.Bytes())
				line = bytes.Buffer{}
			}
			long.head.read(part)
		}
		switch {
		case err == nil && long.size > most:
			return nil, &long
		case err == nil:
			return line.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case long.size/skipFactor > most:
			return nil, errEndless
		}
	}
}

// lineHead finds out which call a message answers that is not kept.
type lineHead struct {
	depth           int
	inText, escaped bool
	word            []byte // the text at depth 1, as far as it is short
	name            string // of the member whose value is read
	ids             int
	id              []byte
	method          bool // it is no answer
}

// mostWord is how much of the text at depth 1 is kept: more than an id of ours has.
const mostWord = 64

func (h *lineHead) read(part []byte) {
	for _, c := range part {
		switch {
		case h.inText:
			h.inText = h.escaped || c != '"'
			h.escaped = !h.escaped && c == '\\'
		case c == '"':
			h.inText = true
		case c == '{', c == '[':
			h.depth++
			continue
		case c == '}', c == ']':
			h.ends()
			h.depth--
			continue
		case c == ',':
			h.ends()
			continue
		case c == ':' && h.depth == 1:
			h.name, h.word = string(h.word), h.word[:0]
			continue
		case c <= ' ':
			continue
		}
		if h.depth == 1 && len(h.word) < mostWord {
			h.word = append(h.word, c)
		}
	}
}

// ends takes the value of a member, if one ends here.
func (h *lineHead) ends() {
	if h.depth != 1 {
		return
	}
	switch h.name {
	case `"id"`:
		h.ids, h.id = h.ids+1, bytes.Clone(h.word)
	case `"method"`:
		h.method = true
	}
	h.name, h.word = "", h.word[:0]
}

// answers is the id of the message. It is not ok if it has none, or several.
func (h *lineHead) answers() (id rpc.ID, ok bool) {
	if h.ids != 1 {
		return id, false
	}
	return rpc.ReadID(h.id)
}
