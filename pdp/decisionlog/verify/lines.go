package verify

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lines reads a file line by line in constant memory. A line that is too long, or the
// last one without its newline, is an error and not a shorter line: an export that was
// cut off must not pass for a whole one.
type lines struct {
	r      *bufio.Reader
	max    int
	number int64
	long   []byte
	// handed, where set, has the lines of a part of a merge, in place of r.
	handed func() ([]byte, error)
}

var (
	errLongLine = errors.New("the line is longer than any record can be")
	errCutLine  = errors.New("the last line is cut off")
)

func newLines(r io.Reader, max int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 256<<10), max: max}
}

// next is the next line without its newline, valid until the next call; io.EOF at the end.
func (l *lines) next() ([]byte, error) {
	if l.handed != nil {
		return l.handed()
	}
	line, err := l.r.ReadSlice('\n')
	if len(line) > 0 || err == nil {
		l.number++
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.join(line)
	}
	switch {
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, errCutLine
	case err != nil:
		return nil, err
	case len(line) > l.max+1:
		return nil, errLongLine
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}

// join reads on until the line ends or is too long; it grows with what is read, never
// with what a length says.
func (l *lines) join(start []byte) ([]byte, error) {
	l.long = append(l.long[:0], start...)
	for {
		more, err := l.r.ReadSlice('\n')
		l.long = append(l.long, more...)
		if len(l.long) > l.max+1 {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.long, err
		}
	}
}
