package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/visible"
)

const (
	mostErrLine  = 1 << 10
	errLineRate  = 10 // a second
	errLineBurst = 50
)

// logErrors reads all that a server writes to its standard error, so that it never waits for us, and logs a part of it: so
// many lines a second, and the beginning of each, without the secrets that begin there.
func logErrors(from io.Reader, o *CommandOptions) {
	in := bufio.NewReaderSize(from, mostErrLine+2*o.errMasks.Longest())
	allowed := rate.NewLimiter(errLineRate, errLineBurst)
	left := 0
	for {
		line, err := in.ReadSlice('\n')
		begin, places := o.errMasks.Begin(line, mostErrLine)
		text := strings.TrimSpace(strings.ToValidUTF8(string(begin), "�"))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			_, err = in.ReadSlice('\n')
		}
		switch {
		case text == "":
		case allowed.AllowN(time.Now(), 1):
			if places > 0 {
				o.Masked(places)
			}
			attrs := []slog.Attr{slog.String("line", visible.Quoted(text))}
			if left > 0 {
				attrs = append(attrs, slog.Int("left_out_before", left))
			}
			o.Logger.LogAttrs(context.Background(), slog.LevelInfo, "an MCP server says on its standard error", attrs...)
			left = 0
		default:
			left++
		}
		if err != nil {
			return
		}
	}
}
