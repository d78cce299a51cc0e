package author

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/mcp/wire"
)

// declaration is made of a message.
type declaration struct {
	owner string
	text  []byte
	// at has the place in the message, by the line that is made of it.
	at map[int]string
}

// The words of a declaration.
const (
	allowlist, denylist, open, hybrid = "allowlist", "denylist", "open", "hybrid"
	allow, deny                       = "allow", "deny"
)

// declared makes a declaration of a policy. Most that is wrong with it is found when it is read back.
func declared(p wire.AccessPolicy, owner string, subjects []string) (*declaration, error) {
	implied := map[string]string{allowlist: deny, denylist: allow, open: allow}[p.Mode]
	if p.Default != "" && implied != "" && p.Default != implied {
		return nil, fmt.Errorf("%s/default: the default of %s is %s; leave it out, or send mode hybrid", p.At, p.Mode, implied)
	}
	w := writer{at: map[*yaml.Node]string{}}
	root := w.mapping(0)
	from := "/from"
	if p.Envelope.From == "" {
		from = "--owner"
	}
	w.add(root, "owner", w.text(owner), from)
	w.add(root, "mode", w.text(p.Mode), p.At+"/mode")
	if p.Default != "" && implied == "" {
		w.add(root, "default", w.text(p.Default), p.At+"/default")
	}
	w.add(root, "subjects", w.list(subjects), "--subjects")
	if len(p.Rules) > 0 {
		rules := &yaml.Node{Kind: yaml.SequenceNode}
		for n, r := range p.Rules {
			rule, at := w.rule(p, r), p.At+"/rules/"+strconv.Itoa(n)
			w.at[rule] = at
			rules.Content = append(rules.Content, rule)
		}
		w.add(root, "rules", rules, p.At+"/rules")
	}
	return w.written(root, origin(p, owner), owner)
}

// origin says where a declaration comes from.
func origin(p wire.AccessPolicy, owner string) string {
	const by = ", by policy-service access import"
	if p.Envelope.From == "" {
		return "From a policy that somebody has said is of " + shown(owner) + by
	}
	text := "From a message of "
	if p.Envelope.ID != "" {
		text = "From the message " + shown(p.Envelope.ID) + " of "
	}
	text += shown(p.Envelope.From)
	if !p.Envelope.Time.IsZero() {
		text += ", " + cli.Time(p.Envelope.Time)
	}
	return text + by
}

// shown is a name in a comment.
func shown(name string) string { return string(cli.Cut(name, 128)) }

// writer makes the nodes of a declaration, and keeps their places in the message.
type writer struct{ at map[*yaml.Node]string }

func (writer) mapping(style yaml.Style) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: style}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// text is a text that stays one, whatever is in it.
func (writer) text(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if !plainName.MatchString(text) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func (w writer) list(texts []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range texts {
		n.Content = append(n.Content, w.text(text))
	}
	return n
}

func (w writer) add(to *yaml.Node, key string, value *yaml.Node, at string) {
	name := w.text(key)
	w.at[name] = at
	to.Content = append(to.Content, name, value)
}

// rule is a rule on one line.
func (w writer) rule(p wire.AccessPolicy, r wire.AccessRule) *yaml.Node {
	rule := w.mapping(yaml.FlowStyle)
	w.add(rule, "agent", w.text(r.Agent), "")
	if slices.Equal(r.Tools, []string{wire.AllTools}) {
		w.add(rule, "tools", w.text(wire.AllTools), "")
	} else {
		w.add(rule, "tools", w.list(r.Tools), "")
	}
	if r.Expires != "" {
		w.add(rule, "expires", w.text(r.Expires), "")
	}
	if r.RequiresApproval {
		w.add(rule, "requires_approval", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}, "")
	}
	effect := r.Effect
	if p.Mode == hybrid && effect == "" { // 001 has exceptions to the default
		effect = map[string]string{allow: deny, deny: allow}[p.Default]
	}
	if effect != "" {
		w.add(rule, "effect", w.text(effect), "")
	}
	return rule
}

// written is the declaration as text.
func (w writer) written(root *yaml.Node, comment, owner string) (*declaration, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# %s\n", comment)
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	if err := out.Encode(root); err != nil {
		return nil, fmt.Errorf("no declaration can be written of it: %w; send what YAML can hold", err)
	}
	d := &declaration{owner: owner, text: seen(text.String()), at: map[int]string{}}
	var again yaml.Node
	if err := yaml.Unmarshal(d.text, &again); err != nil {
		return nil, fmt.Errorf("no declaration can be written of it: %w; send what YAML can hold", err)
	}
	w.places(d, root, again.Content[0])
	return d, nil
}

// seen escapes invisible characters of a declaration. They can only stand in a text in double quotes.
func seen(text string) (b []byte) {
	for _, r := range text {
		if r != '\n' && !strconv.IsPrint(r) {
			b = fmt.Appendf(b, `\U%08X`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// places notes the place in the message for each line.
func (w writer) places(d *declaration, made, read *yaml.Node) {
	if at := w.at[made]; at != "" {
		d.at[read.Line] = at
	}
	for n := range made.Content {
		w.places(d, made.Content[n], read.Content[n])
	}
}

var lineNamed = regexp.MustCompile(`\bline (\d+)`)

// inMessage are problems of the declaration, at the places in the message that it is made of.
func (d *declaration) inMessage(problems pdp.Problems, message, file string) pdp.Problems {
	placed := slices.Clone(problems)
	for n, p := range placed {
		if p.File != file {
			continue
		}
		p.File = message
		if at := d.at[p.Line]; at != "" {
			p.File += ": " + at
		}
		p.Line, p.Column = 0, 0
		p.Message = lineNamed.ReplaceAllStringFunc(p.Message, func(text string) string {
			line, _ := strconv.Atoi(text[len("line "):])
			if at := d.at[line]; at != "" {
				return at
			}
			return text
		})
		placed[n] = p
	}
	return placed
}
