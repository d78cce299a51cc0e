// Package completion has the command that shells ask how a line may go on: [Command]. A shell's script hands over the words
// of the line, and the answer comes from the command line itself, so that no list of commands stands anywhere else.
package completion

import (
	"embed"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"policy-service/pdp/internal/command/cli"
)

// Command prints the script of a shell, or the words that may come next on a line.
type Command struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
	Words []string `arg:"" optional:"" help:"The words of a line behind --, the last of which is unfinished. Scripts give them."`
}

//go:embed scripts
var scripts embed.FS

// Help ends the command's help.
func (Command) Help() string {
	return "Put the script where the shell finds it:\n\n" +
		"policy-service completion bash >/etc/bash_completion.d/policy-service\n\n" +
		"policy-service completion zsh >/usr/local/share/zsh/site-functions/_policy-service\n\n" +
		"policy-service completion fish >/etc/fish/completions/policy-service.fish"
}

// Run prints the script, or a line for each word that may stand there: the word, a tab, and its help.
func (c Command) Run(ctx *kong.Context, s cli.Streams) error {
	if len(c.Words) == 0 {
		script, err := scripts.ReadFile("scripts/policy-service." + c.Shell)
		if err == nil {
			_, err = s.Out.Write(script)
		}
		return err
	}
	for _, w := range next(ctx.Model.Node, whole(c.Words)) {
		s.Print("%s\t%s", w.text, cli.Shown(strings.Join(strings.Fields(w.help), " ")))
	}
	return nil
}

// whole joins the two words that bash makes of a flag and its value at =.
func whole(words []string) []string {
	if words[len(words)-1] == "=" {
		words = append(words, "")
	}
	return slices.DeleteFunc(words, func(w string) bool { return w == "=" })
}

type word struct{ text, help string }

// next are the words that begin with the last one and may stand in its place. Nothing may where anything may, as a name or a
// file: shells offer files then.
func next(at *kong.Node, words []string) (all []word) {
	before, last := words[:len(words)-1], words[len(words)-1]
	offer := func(prefix, help string, texts ...string) {
		for _, text := range texts {
			if strings.HasPrefix(prefix+text, last) {
				all = append(all, word{prefix + text, help})
			}
		}
	}
	var waiting *kong.Flag // for its value
	arguments := 0
	for _, w := range before {
		child := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == w })
		switch {
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(w, "-"):
			if flag := flagOf(at, w); flag != nil && !flag.IsBool() && !strings.Contains(w, "=") {
				waiting = flag
			}
		case child >= 0:
			at = at.Children[child]
		default:
			arguments++
		}
	}
	name, _, valued := strings.Cut(last, "=")
	switch {
	case waiting != nil:
		offer("", waiting.Help, values(waiting.Value)...)
	case strings.HasPrefix(last, "-") && valued:
		if flag := flagOf(at, last); flag != nil {
			offer(name+"=", flag.Help, values(flag.Value)...)
		}
	case strings.HasPrefix(last, "-"):
		for _, flag := range flags(at) {
			offer("--", flag.Help, flag.Name)
		}
	default:
		for _, child := range at.Children {
			if !child.Hidden && arguments == 0 {
				offer("", child.Help, child.Name)
			}
		}
		if arguments < len(at.Positional) {
			offer("", "", values(at.Positional[arguments])...)
		}
	}
	return all
}

// values are those that a flag or an argument may have, if they can be counted.
func values(of *kong.Value) []string {
	if of.Enum == "" {
		return nil
	}
	return of.EnumSlice()
}

// flags are those of a command, of the commands that it belongs to, and of the one that need not be said.
func flags(at *kong.Node) []*kong.Flag {
	all := slices.Concat(at.AllFlags(true)...)
	if at.DefaultCmd != nil {
		all = append(all, at.DefaultCmd.Flags...)
	}
	return all
}

func flagOf(at *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	all := flags(at)
	if n := slices.IndexFunc(all, func(f *kong.Flag) bool { return f.Name == name || f.Short != 0 && string(f.Short) == name }); n >= 0 {
		return all[n]
	}
	return nil
}
