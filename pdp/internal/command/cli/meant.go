package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"policy-service/pdp/internal/spelling"
)

// Meant is an error about a word that is no command, with the command that is near: one of the group, or the whole path of
// one of another group that has this very name.
func Meant(err error) error {
	var parse *kong.ParseError
	word, ok := strings.CutPrefix(err.Error(), "unexpected argument ")
	if !ok || !errors.As(err, &parse) || parse.Context == nil {
		return err
	}
	word, _, _ = strings.Cut(word, ", did you mean")
	group := parse.Context.Selected()
	if group == nil {
		group = parse.Context.Model.Node
	}
	var names []string
	for _, command := range group.Children {
		names = append(names, command.Name)
	}
	near, found := spelling.Nearest(word, names)
	for _, command := range parse.Context.Model.Leaves(true) {
		if !found && len(names) > 0 && command.Name == word {
			near, found = command.Path(), true
		}
	}
	if !found {
		return fmt.Errorf("unexpected argument %s", word)
	}
	return fmt.Errorf("unexpected argument %s; did you mean %q?", word, near)
}
