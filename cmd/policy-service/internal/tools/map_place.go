package tools

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/evaluation"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/server/config"
)

// placing finds where something stands that has a message refused.
type placing struct {
	by   Map
	told mcp.Config
	from config.Origins
}

// of is the place as file:line:column, or as much of it as can be found.
func (p placing) of(r refusedJSON, message []byte) string {
	switch mcp.Place(r.In) {
	case mcp.InMapping:
		if all := append(p.configured(message, r), p.declared(message, r)...); len(all) > 0 {
			return all[0]
		}
		return string(p.by.Config)
	case mcp.InDefinition:
		if all := p.definitions(message); len(all) > 0 {
			return within(all[0].file, all[0].text, all[0].base+r.Pointer)
		}
		return ""
	case mcp.InMessage:
		return within(p.by.Message, p.original(message), r.Pointer)
	}
	text := p.original(message)
	offset := len(text) - len(bytes.TrimLeft(text, blanks))
	if m := atByte.FindStringSubmatch(r.Message); m != nil {
		n, _ := strconv.Atoi(m[1])
		offset += n
	} else if strings.HasSuffix(r.Message, "ends too early") {
		offset = len(text)
	}
	line, column := cli.Position(text, min(offset, len(text)))
	return fmt.Sprintf("%s:%d:%d", p.by.Message, line, column)
}

var atByte = regexp.MustCompile(`^at byte (\d+): `)

// original is the message as the file has it.
func (p placing) original(message []byte) []byte {
	if text, err := os.ReadFile(p.by.Message); err == nil {
		return text
	}
	return message // it was standard input
}

// configured are the places in the operator's mappings for the message that have what is wrong.
func (p placing) configured(message []byte, r refusedJSON) (all []string) {
	method, name := textAt(message, "/method"), textAt(message, "/params/name")
	for key, text := range p.told.Mappings {
		of, tool, ofTool := strings.Cut(key, " ")
		server, own, _ := strings.Cut(tool, ":")
		if of != method || ofTool && p.told.ToolName(server, own) != name || !says(text, "", r) {
			continue
		}
		at := p.from[p.from.Below(config.Entry("mappings", key), r.Pointer)]
		if ofTool { // it counts before the other
			return []string{at}
		}
		all = append(all, at)
	}
	return all
}

// declared are the places in the mappings that the called tool declares.
func (p placing) declared(message []byte, r refusedJSON) (all []string) {
	for _, d := range p.definitions(message) {
		for _, member := range []string{"x-authzen-mapping", "x-coaz-mapping"} {
			base := d.base + "/inputSchema/" + member
			if _, declares := valueAt(d.text, base); declares && says(d.text, base, r) {
				all = append(all, within(d.file, d.text, base+r.Pointer))
			}
		}
	}
	return all
}

// definition is where a tool's definition stands: at base in a file.
type definition struct {
	file string
	text []byte
	base string
}

// definitions are those of the tool that the message calls.
func (p placing) definitions(message []byte) (all []definition) {
	if file := string(p.by.Definition); file != "" {
		if text, err := os.ReadFile(file); err == nil {
			return []definition{{file: file, text: text}}
		}
	}
	file := p.told.Lock.File
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	locked, err := lock.Parse(text)
	if err != nil {
		return nil
	}
	name := textAt(message, "/params/name")
	for server, s := range locked.Servers {
		for own := range s.Tools {
			if p.told.ToolName(server, own) == name {
				all = append(all, definition{file, text, pointerTo("servers", server, "tools", own, "definition")})
			}
		}
	}
	return all
}

// says reports whether a mapping, which stands at base, has the expression that is wrong where it is said to be.
func says(text []byte, base string, r refusedJSON) bool {
	return r.Expression == "" || textAt(text, base+r.Pointer) == r.Expression
}

// pointerOf is where an error says that it is.
func pointerOf(err error) string {
	if e := (*evaluation.Error)(nil); errors.As(err, &e) {
		return e.Pointer
	}
	return ""
}

// within is the place in a JSON text to which a pointer leads, as file:line:column, or to the nearest above it.
func within(file string, text []byte, pointer string) string {
	line, column := cli.Position(text, offsets(text, []string{pointer})[0])
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

// valueAt is the value to which a pointer leads.
func valueAt(text []byte, pointer string) (v any, found bool) {
	if json.Unmarshal(text, &v, jsontext.AllowDuplicateNames(true)) != nil {
		return nil, false
	}
	for _, token := range evaluation.Tokens(pointer) {
		switch of := v.(type) {
		case map[string]any:
			v, found = of[token]
		case []any:
			n, err := strconv.Atoi(token)
			if found = err == nil && n < len(of); found {
				v = of[n]
			}
		default:
			found = false
		}
		if !found {
			return nil, false
		}
	}
	return v, true
}

// textAt is the string to which a pointer leads, "" if there is none.
func textAt(text []byte, pointer string) string {
	v, _ := valueAt(text, pointer)
	s, _ := v.(string)
	return s
}
