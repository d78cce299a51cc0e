package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"policy-service/pdp/internal/visible"
)

// Interactive reports whether a person can be asked: a terminal is on both sides.
func (s Streams) Interactive() bool {
	in, ok := s.In.(io.Writer) // a file, if it is a terminal
	return ok && IsTerminal(in) && IsTerminal(s.Err)
}

// Ask prints a question to standard error, and returns the line that is typed, without space around it. It ends with the
// context, too: an interrupt is an answer.
func (s Streams) Ask(ctx context.Context, question string) (string, error) {
	_, _ = fmt.Fprint(s.Err, visible.Text(question)+" ")
	type answer struct {
		text string
		err  error
	}
	typed := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(s.In).ReadString('\n')
		typed <- answer{strings.TrimSpace(text), err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-typed:
		if a.err == io.EOF {
			a.err = nil
		}
		return a.text, a.err
	}
}

// Confirm asks whether to go on. Only y and yes are a yes: else nothing is done, and the command ends with [No].
func (s Streams) Confirm(ctx context.Context, question string) error {
	text, err := s.Ask(ctx, question+" [y/N]")
	if err == nil && !strings.EqualFold(text, "y") && !strings.EqualFold(text, "yes") {
		s.Tell("that is no y: nothing is done")
		err = No
	}
	return err
}
