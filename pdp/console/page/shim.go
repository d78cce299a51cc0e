package page

import (
	"strings"

	"policy-service/pdp/visible"
)

// until pdp/visible has Of
type (
	kind  int
	piece struct {
		Text string
		Kind kind
		Note string
	}
	shown struct {
		Lines, More [][]piece
		RightToLeft bool
		Notes       []string
	}
)

const (
	kindPlain kind = iota
	kindEscape
	kindSpaces
	kindAlike
)

func shownOf(text string) (s shown) {
	for _, line := range strings.Split(visible.Lines(text), "\n") {
		s.Lines = append(s.Lines, []piece{{Text: line}})
	}
	return s
}

// Marked reports if a piece is drawn as something else than text.
func (p piece) Marked() bool { return p.Kind != kindPlain }

// Class is how a piece is drawn.
func (p piece) Class() string { return [...]string{"plain", "esc", "spaces", "alike"}[p.Kind] }
