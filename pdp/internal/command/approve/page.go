package approve

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/visible"
)

// page shows an approval request to the person who decides about it. Nearly all of it was written by the program that
// wants a yes. So none of it can act on the terminal, each value stays on its line, and a value that is too long is
// cut, with a note there and at the end. A note below a text says that it looks like another one.
type page struct {
	cli.Streams
	flags serverFlags // of the commands at the end; without a server there are none
	notes notes       // for the row that comes next
}

const (
	longestText  = 300 // characters of a value
	longestValue = 100 // lines of the arguments, of the properties, …
)

// notes are sentences about texts that look like others, each once.
type notes []string

// cut is a value as far as it is shown. There may be notes about all of it.
func (n *notes) cut(text string, most int) cli.Shown {
	n.add(visible.Notes(text))
	return cli.Cut(text, most)
}

func (n *notes) add(all []string) {
	for _, note := range all {
		if !slices.Contains(*n, note) {
			*n = append(*n, note)
		}
	}
}

func (p *page) cut(text string) cli.Shown { return p.notes.cut(text, longestText) }

func (p *page) print(r inbox.Request) {
	p.line("approval", "%s", strings.TrimPrefix(string(standing(r)), "approval "))
	if r.Message != "" {
		p.row("message", "%s", p.cut(r.Message))
	}
	if r.Redacted() {
		p.row("redacted", "%s; it came through %s", cli.Time(r.RedactedAt), p.cut(cmp.Or(r.Requester, "-")))
	} else {
		p.who(r)
		p.what(r)
	}
	each, continued := "", ""
	if r.Uses > 1 {
		each = "each time "
	}
	if r.Continued > 0 {
		continued = ", continued " + times(r.Continued)
	}
	p.row("needs", "%s of template %s; can be used %s, used %s%s",
		cli.Plural(r.Quorum, "approval"), p.cut(r.Template), times(r.Uses), times(r.Used), continued)
	if r.Rounds > 0 {
		p.row("counts", "%s, and %sup to %s within %s",
			times(r.Uses), each, cli.Plural(r.Rounds, "follow-up question"), p.cut(r.RoundsWithin))
	}
	for _, one := range r.InFlight {
		p.row("under way", "%s", underWay(r, one))
	}
	for _, said := range r.Said {
		p.row("said", "%s", p.sentence(said))
	}
	p.row("filed", "%s, for tenant %s", cli.Time(r.FiledAt), p.cut(r.Tenant))
	p.row("decision", "%s", p.cut(r.Decision))
	if r.Link != "" {
		p.line("open", "%s", cli.Cut(r.Link, longestText))
	}
	p.commands(r)
}

// line prints text of ours. It stays on one line, from which it can be copied.
func (p *page) line(name, format string, args ...any) {
	p.Print("%-10s  %s", name, cli.Lines(fmt.Sprintf(format, args...)))
}

// row prints a text from elsewhere, and the notes about it. None of it may stand below our names, not even if the terminal
// breaks a line.
func (p *page) row(name, format string, args ...any) {
	p.line(name, "%s", fold(fmt.Sprintf(format, args...)))
	for _, note := range p.notes {
		p.line("note", "%s", fold(note))
	}
	p.notes = nil
}

const (
	besideNames = 68 // columns of a terminal of 80
	belowNames  = "\n            "
)

func fold(text string) string {
	var b strings.Builder
	column := 0
	for _, r := range text {
		width := 1
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me): // on the letter before it
			width = 0
		case r >= 0x1100: // from here on there are some that take two
			width = 2
		}
		if r == '\n' || column+width > besideNames {
			b.WriteString(belowNames)
			column = 0
		}
		if r != '\n' {
			b.WriteRune(r)
			column += width
		}
	}
	return b.String()
}

// who shows the subject, the action, the resource, and those for whom the subject acts.
func (p *page) who(r inbox.Request) {
	by, others := r.Request.Actors()
	p.row("asked by", "%s, through %s", p.actor(by), p.cut(cmp.Or(r.Requester, "-")))
	for _, one := range others {
		p.row("for", "%s", p.actor(one))
	}
	if requester, named := r.Request.Requester(); named {
		p.row("request of", "%s", p.actor(requester))
	}
	p.row("to do", "%s", p.cut(r.Request.Action.Name))
	p.row("with", "%s", p.cut(named(r.Request.Resource)))
	if says := r.Request.ServerSays(); says != "" {
		p.row("the server", `says "%s"`, p.cut(says))
	}
}

// what shows the rest of the question, the arguments first.
func (p *page) what(r inbox.Request) {
	short := p.value("arguments", r.Request.Context["arguments"])
	short = p.value("context", without(r.Request.Context, "arguments")) || short
	short = p.value("action", r.Request.Action.Properties) || short
	short = p.value("subject", r.Request.Subject.Properties) || short
	short = p.value("resource", r.Request.Resource.Properties) || short
	short = p.value("says why", r.Justification) || short
	if len(r.Unbound) > 0 {
		p.row("not bound", "%s: the approval also counts with other values there", p.cut(strings.Join(r.Unbound, ", ")))
	}
	if short {
		p.Print("%s", p.Colour(cli.Yellow, "Not all of it is shown: some is too long. --json shows all."))
	}
}

// without is the object without one member.
func without(members map[string]jsontext.Value, name string) jsontext.Value {
	rest := maps.Clone(members)
	delete(rest, name)
	object, err := json.Marshal(rest, json.Deterministic(true))
	if err != nil { // value shows that this is no JSON
		return jsontext.Value(err.Error())
	}
	return object
}

// value prints something that was sent, and reports whether it was cut.
func (p *page) value(name string, v jsontext.Value) (short bool) {
	if len(v) == 0 || string(v) == "{}" {
		return false
	}
	p.notes.add(visible.NotesInJSON(v))
	text, short := readable(v)
	lines := strings.Split(visible.QuotedLines(text), "\n")
	if more := len(lines) - longestValue; more > 0 {
		lines, short = append(lines[:longestValue], fmt.Sprintf("… (and %s)", cli.Plural(more, "more line"))), true
	}
	p.row(name, "%s", strings.Join(lines, "\n"))
	return short
}

// readable is indented JSON, in which every text is short enough to be read.
func readable(v jsontext.Value) (text string, short bool) {
	var b bytes.Buffer
	in := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true))
	// Names that are cut may be equal.
	out := jsontext.NewEncoder(&b,
		jsontext.Multiline(true), jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true))
	for {
		token, err := in.ReadToken()
		if err == io.EOF {
			return strings.TrimSuffix(b.String(), "\n"), short
		}
		if err == nil && token.Kind() == '"' {
			if beginning, left := cli.Shorten(token.String(), longestText); left > 0 {
				token, short = jsontext.String(beginning+cli.More(left)), true
			}
		}
		if err == nil {
			err = out.WriteToken(token)
		}
		if err != nil { // it is part of JSON that was read already
			return "(this cannot be shown)", true
		}
	}
}

// commands shows the commands that may come next.
func (p *page) commands(r inbox.Request) {
	if p.flags.Server == "" {
		return
	}
	command := func(name, more string) {
		p.line(name, "policy-service approvals %s %s%s --reason WHY %s", name, cli.Shell(r.ID), more, p.flags.Where())
	}
	switch r.Status {
	case "pending":
		command("approve", fmt.Sprintf(" --version %d", r.Version))
		command("deny", "")
		if r.Delegable {
			command("delegate", ` --to 'User::"WHO"'`)
		}
	case "approved":
		command("revoke", "")
	}
}

// actor is an actor by name, or the JSON that stands in place of a name.
func (p *page) actor(a inbox.Actor) cli.Shown {
	if a.Name != "" {
		return p.cut(a.Name)
	}
	text, left := cli.Shorten(string(a.JSON), longestText)
	p.notes.add(visible.NotesInJSON(a.JSON))
	if shown := cli.Shown(visible.Quoted(text)); left == 0 {
		return shown
	} else {
		return shown + cli.Shown(cli.More(left))
	}
}

// sentence is a vote in one line. A vote that came by the API, the usual way, does not name it.
func (p *page) sentence(said inbox.Said) cli.Shown {
	line := p.cut(said.By) + " " + p.notes.cut(said.Decision, longestCell)
	if said.To != "" {
		line += " to " + p.cut(said.To)
	}
	switch {
	case said.Gateway != "":
		line += ", by " + p.notes.cut(string(said.Via), longestCell) + " through " + p.cut(said.Gateway)
	case said.Via == "console":
		line += ", by console"
	}
	line += cli.Shown(", " + cli.Time(said.At))
	if !said.ValidUntil.IsZero() {
		line += cli.Shown(", valid until " + cli.Time(said.ValidUntil))
	}
	return line + ": " + p.cut(cmp.Or(said.Reason, "-"))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
