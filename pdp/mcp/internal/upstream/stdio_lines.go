package upstream

import (
	"bufio"
	"bytes"
	"errors"
)

// errLongLine is of a line that is longer than it may be. What follows the line can be read.
var errLongLine = errors.New("a line is longer than max_result")

// errEndless is of a line that goes on even so.
var errEndless = errors.New("a line does not end")

// skipFactor is how many times longer than it may be a line is read to find its end.
const skipFactor = 8

// nextLine reads a line of at most so many bytes, and no more of a longer one into memory. A last line without an end is
// none: who wrote it was cut off.
func nextLine(in *bufio.Reader, most int) ([]byte, error) {
	var line bytes.Buffer
	size := 0
	for {
		part, err := in.ReadSlice('\n')
		if size += len(part); size <= most {
			line.Write(part)
		} else {
			line = bytes.Buffer{}
		}
		switch {
		case err == nil && size > most:
			return nil, errLongLine
		case err == nil:
			return line.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case size/skipFactor > most:
			return nil, errEndless
		}
	}
}
