package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"policy-service/pdp/pdptest/inside/command"
)

// The page for operators ends with a table of all commands, and says in its text which ones to run. Here both are held to
// the commands that there are, and its steps for systemd to the unit.

const (
	operatorPage = "cmd/policy-service/README.md"
	installPage  = "cmd/policy-service/INSTALL.md"
)

// flagsOf are the flags of a command as its synopsis has them, but for those that all commands have: by their letter if
// the command's example has that, and with … if they can be repeated.
func flagsOf(leaf *kong.Node) string {
	var all []string
	var flags []*kong.Flag
	for _, flag := range leaf.Flags { // those of which one is required stand together
		n := len(flags)
		if other := slices.IndexFunc(flags, func(f *kong.Flag) bool { return len(flag.Xor) > 0 && slices.Equal(f.Xor, flag.Xor) }); flag.Required && other >= 0 {
			for n = other; n < len(flags) && slices.Equal(flags[n].Xor, flag.Xor); n++ {
			}
		}
		flags = slices.Insert(flags, n, flag)
	}
	for _, flag := range flags {
		text := "--" + flag.Name
		if letter := "-" + string(flag.Short); flag.Short != 0 && strings.Contains(command.Examples[leaf.Path()], " "+letter+" ") {
			text = letter
		}
		switch {
		case flag.IsBool():
		case flag.Enum != "" && flag.HasDefault: // of whose values one is taken
			text += " " + strings.ReplaceAll(flag.Enum, ",", "|")
		default:
			text += " " + strings.ReplaceAll(strings.TrimSuffix(flag.FormatPlaceHolder(), ",..."), `"`, "")
		}
		switch {
		case !flag.Required:
			text = "[" + text + "]"
		case len(flag.Xor) > 0: // one of these
			group := slices.DeleteFunc(slices.Clone(flags), func(other *kong.Flag) bool { return !slices.Equal(other.Xor, flag.Xor) })
			if group[0] == flag {
				text = "(" + text
			}
			if group[len(group)-1] == flag {
				text += ")"
			} else {
				text += " |"
			}
		}
		if flag.IsCumulative() {
			text += "…"
		}
		if flag.Name != "help" {
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}

// synopsis is a command as the table shows it, with the table's words for flags that several commands have.
func synopsis(leaf *kong.Node, words *strings.Replacer) string {
	text := leaf.Path()
	if leaf.Parent != nil && leaf.Parent.DefaultCmd == leaf { // which need not be said
		text = strings.TrimSuffix(text, leaf.Name) + "[" + leaf.Name + "]"
	}
	if flags := flagsOf(leaf); flags != "" {
		text += " " + words.Replace(flags)
	}
	for _, argument := range leaf.Positional {
		text += " " + strings.ToUpper(argument.Name)
	}
	return text
}

func TestCommandsPage(t *testing.T) {
	p := readPage(t, operatorPage)
	var words []string
	for _, found := range regexp.MustCompile("(?m)^\\* `([A-Z]+)` stands for `([^`]+)`").FindAllStringSubmatch(p.text, -1) {
		words = append(words, strings.Join(strings.Fields(found[2]), " "), found[1])
	}
	if len(words) == 0 {
		t.Fatalf("%s says for no word what it stands for", p.path)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .*[a-z].* \\| .*0.* \\|$").FindAllStringSubmatch(p.text, -1) {
		rows[strings.ReplaceAll(row[1], `\|`, "|")] = true // as a table writes it
	}
	for _, leaf := range leaves(t) {
		own := words
		if leaf.Path() == "serve" { // which says what the word stands for
			own = words[2:]
		}
		want := synopsis(leaf, strings.NewReplacer(own...))
		if !rows[want] {
			t.Errorf("%s has no row for `%s`", p.path, want)
		}
		delete(rows, want)
	}
	for row := range rows {
		t.Errorf("%s has a row for `%s`, which is no command, or not as it is", p.path, row)
	}
}

// TestOperatorPageCommands: what the text says to run, this program understands.
func TestOperatorPageCommands(t *testing.T) {
	var text strings.Builder
	for _, path := range []string{operatorPage, installPage} {
		for _, line := range readPage(t, path).prose() {
			text.WriteString(line + "\n")
		}
	}
	found := regexp.MustCompile("`(?:runuser -u policy-service -- |bin/|docker run [^`]* )?policy-service ([a-z][^`]*)`").FindAllStringSubmatch(text.String(), -1)
	if len(found) < 6 {
		t.Errorf("only %d commands are found", len(found))
	}
	for _, command := range found {
		parsed(t, strings.Fields(strings.ReplaceAll(command[1], "'", ""))) // as a shell reads what has no spaces
	}
}

// TestOperatorPageSystemd: what the first lines of the unit say to do is on the page for installing, in the same order, and
// what they say to change is on both.
func TestOperatorPageSystemd(t *testing.T) {
	_, section, _ := strings.Cut(readPage(t, installPage).text, "\n## Start it under systemd\n")
	head, _, _ := strings.Cut(string(deployed(t, "systemd/policy-service.service")), "[Unit]")
	at := 0
	for _, step := range []string{
		"/usr/local/bin/policy-service", "/etc/systemd/system", "/etc/sysusers.d", "systemd-sysusers", "/etc/policy-service/policies",
		"systemctl enable --now policy-service", "Environment=POLICY_SERVICE_CONFIG=/etc/policy-service/config.yaml",
	} {
		if !strings.Contains(head, step) {
			t.Errorf("the first lines of the unit do not have %q", step)
		}
		next := strings.Index(section[at:], step)
		if next < 0 {
			t.Fatalf("the page lacks %q, or has it in another order", step)
		}
		at += next
	}
	page := readPage(t, operatorPage).text
	for _, also := range []string{
		"runuser -u policy-service -- policy-service keys list --data /var/lib/policy-service", "systemctl edit policy-service",
		"Environment=POLICY_SERVICE_CONFIG=/etc/policy-service/config.yaml",
	} {
		if !strings.Contains(head, also) || !strings.Contains(page, also) {
			t.Errorf("the unit and the page do not both have %q", also)
		}
	}
}

// TestInstallPageContainer: the container of the page may take as long to stop as the service does.
func TestInstallPageContainer(t *testing.T) {
	if text := readPage(t, installPage).text; !strings.Contains(text, "--stop-timeout 45 ") || stopsWithin > 45*time.Second {
		t.Errorf("a stop takes up to %v", stopsWithin)
	}
}
