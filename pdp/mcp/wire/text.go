package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/visible"
)

// question is the text that a person reads. It has everything that the approval would be for, in every form: some
// clients show nothing but this text and the fields, and a person cannot approve a text that is cut off. Each line is the
// service's own, whatever names and values it holds: they break no line, and a name that could be read as more than a
// name is in quotes. The text of the tool's server stands behind that of the policy, and never in its place.
func (c *Call) question() string {
	lines := []string{c.saysPolicy()}
	notes := slices.Concat(visible.NotesInJSON(c.of.Request), visible.Notes(c.reason()), visible.Notes(c.of.Tenant))
	if careful := visible.Careful(notes); careful != "" { // before lines that may be long
		lines = append(lines, "Careful: "+careful)
	}
	lines = append(lines, c.asks())
	if strings.TrimSpace(c.server) != "" {
		lines = append(lines, "The server says: "+quotes(visible.Shortened(c.server, mostServer)))
	}
	if c.besides.Len() > 0 {
		lines = append(lines, "Besides: "+jsonText(c.besides.Value()))
	}
	if len(c.of.Unbound) > 0 {
		names := make([]string, len(c.of.Unbound))
		for n, name := range c.of.Unbound {
			names[n] = visible.Word(name)
		}
		lines = append(lines, "May be otherwise when it is done: "+strings.Join(names, ", "))
	}
	if c.of.Uses > 1 || c.of.Rounds > 0 {
		lines = append(lines, "Once approved it may be done "+c.times())
	}
	for n, line := range lines {
		lines[n] = visible.Quoted(line)
	}
	return strings.Join(lines, "\n")
}

// mostWoven is the length of a text of a policy in which the values of the request are looked for.
const mostWoven = 4 << 10

// saysPolicy returns what the policy says. What it repeats of the request is in quotes if it is more than one word, as in the
// sentence of asks, so that no name goes on in the words of the policy. A part that could be of two values is one quote.
func (c *Call) saysPolicy() string {
	text := c.reason()
	if len(text) > mostWoven {
		return quotes(text)
	}
	woven := make([]bool, len(text)) // by the request
	in := jsontext.NewDecoder(bytes.NewReader(c.of.Request))
	for token, err := in.ReadToken(); err == nil; token, err = in.ReadToken() {
		if token.Kind() != '"' {
			continue
		}
		value := token.String()
		if visible.Word(value) == value || len(value) < 3 && !strings.ContainsAny(value, `"\\`) { // which says nothing
			continue
		}
		for at, marked := 0, 0; ; at++ {
			n := strings.Index(text[at:], value)
			if n < 0 {
				break
			}
			at += n
			for marked = max(marked, at); marked < at+len(value); marked++ {
				woven[marked] = true
			}
		}
	}
	var b strings.Builder
	for at, end := 0, 0; at < len(text); at = end {
		for end = at; end < len(text) && woven[end] == woven[at]; end++ {
		}
		part := text[at:end]
		if quoted := quotes(part); woven[at] && !(at > 0 && end < len(text) && text[at-1:end+1] == quoted) { // the policy has not quoted it
			part = quoted
		}
		b.WriteString(part)
	}
	return b.String()
}

// times is how often it may be done, and how many follow-up questions belong to that.
func (c *Call) times() string {
	text, each := "once", ""
	if c.of.Uses > 1 {
		text, each = fmt.Sprintf("%d times", c.of.Uses), "each time "
	}
	if c.of.Rounds == 0 {
		return text
	}
	return text + ", and " + each + "up to " + visible.Plural(c.of.Rounds, "follow-up question") + " within " + spell(c.of.RoundsWithin)
}

// spell is a length of time in words.
func spell(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return visible.Plural(int(d/time.Hour), "hour")
	case d%time.Minute == 0:
		return visible.Plural(int(d/time.Minute), "minute")
	}
	return visible.Plural(int(d/time.Second), "second")
}

// asks is the sentence that names the caller, the action, the resource, the subject, the requester, and the arguments.
func (c *Call) asks() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for %s on %s", words(c.caller()), visible.Word(c.of.Action), words(c.of.Resource))
	if c.of.Actors.Agent != nil {
		b.WriteString(" for " + words(c.of.Subject))
	}
	for n, one := range c.of.Actors.Chain {
		b.WriteString([]string{" on behalf of ", ", "}[min(n, 1)] + words(one))
	}
	if c.of.Actors.Requester != nil {
		b.WriteString(" as requested by " + words(*c.of.Actors.Requester))
	}
	if c.of.Tenant != evaluation.DefaultTenant {
		b.WriteString(" in tenant " + visible.Word(c.of.Tenant))
	}
	if c.given.Kind() != evaluation.Null {
		b.WriteString(" with " + jsonText(c.given))
	}
	return b.String()
}

// words is an entity in a sentence. An agent that is known by its id alone has no type.
func words(e evaluation.Ref) string {
	if e.Type != "" {
		return visible.Word(e.Type) + "/" + visible.Word(e.ID)
	}
	if strings.Contains(e.ID, "/") { // it would pass for a type and an id
		return quotes(e.ID)
	}
	return visible.Word(e.ID)
}

// mostServer is how many characters of a server's words have a line of their own. All of them stand among the properties.
const mostServer = 500

func quotes(text string) string {
	v, _ := evaluation.Text(text) // names are UTF-8
	return jsonText(v)
}

func jsonText(v evaluation.Value) string {
	text, _ := v.MarshalJSON() // never fails
	return string(text)
}
