package mcp_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
)

// writer writes JSON of any form that a client may: with spaces, escapes, long numbers and names that look alike.
type writer struct {
	*rand.Rand
	deepest int
}

func (w writer) space() string {
	return []string{"", "", "", " ", "\n", "\t", "\r\n  "}[w.IntN(7)]
}

func (w writer) object(depth, arrays int) string {
	n := w.IntN(5)
	if w.IntN(40) == 0 {
		n = 120
	}
	names := map[string]bool{}
	parts := make([]string, 0, n)
	for range n {
		quoted, name := w.name()
		if names[name] {
			continue
		}
		names[name] = true
		parts = append(parts, w.space()+quoted+w.space()+":"+w.space()+w.value(depth+1, arrays)+w.space())
	}
	if len(parts) == 0 {
		return "{" + w.space() + "}"
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// name is the name of a member as it is written, and what it says.
func (w writer) name() (quoted, name string) {
	alike := []string{`"name"`, `"Name"`, `"NAME"`, `"name "`, `"\u006eame2"`, `"arguments"`, `"Arguments"`, `"_meta"`, `"__proto__"`, `"constructor"`, `"$ref"`,
		`"é"`, `"e\u0301"`, `"\u00e91"`, `"ﬁ"`, `"fi"`, `"K"`, `"K"`, `""`, `" "`, `"a/b"`, `"a~1b"`, `"\/"`, `"\uD83D\uDE00"`, `"jsonrpc"`, `"method"`, `"x-unknown"`}
	if w.IntN(2) == 0 {
		quoted = alike[w.IntN(len(alike))]
	} else {
		quoted = `"m` + strconv.Itoa(w.IntN(1000)) + `"`
	}
	b, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		panic(err)
	}
	return quoted, string(b)
}

func (w writer) value(depth, arrays int) string {
	switch kind := w.IntN(12); {
	case kind < 2 && depth < w.deepest:
		return w.object(depth, arrays)
	case kind == 2 && arrays < 2 && depth < w.deepest:
		n := w.IntN(4)
		parts := make([]string, n)
		for i := range parts {
			parts[i] = w.space() + w.value(depth+1, arrays+1) + w.space()
		}
		return "[" + strings.Join(parts, ",") + "]"
	case kind == 3:
		return []string{"true", "false", "null"}[w.IntN(3)]
	case kind < 7:
		return w.number()
	}
	return w.text()
}

func (w writer) number() string {
	return []string{"0", "1", "1.0", "1e2", "1E+2", "100", "-1", "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808",
		"0.1", "1.50", "123.4567", "1e0", "2.0e1", strconv.Itoa(w.IntN(1 << 30))}[w.IntN(17)]
}

func (w writer) text() string {
	odd := []string{`""`, `"\u0000"`, `"\n\r\t\b\f"`, `"\\"`, `"\""`, `"/"`, `"\/"`, `"é"`, `"\u00e9"`, `"e\u0301"`, `"😀"`, `"\ud83d\ude00"`, "\"\u2028\u2029\"", "\"\u202eevil\"", `"..%2f..%2fetc"`,
		`"data: x\n\nevent: y"`, `"null"`, `"a."`, `"=?base64?AA==?="`, "\"\u200b\"", `"` + strings.Repeat("x", 3000) + `"`}
	return odd[w.IntN(len(odd))]
}

// What arrives is what was sent, byte for byte, in both eras: arguments of any form. It is what was decided about, too.
func TestArgumentsArriveAsTheyWereSent(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	count := night.Cases(500)
	var sent []string
	for n, era := range eras {
		v := s.visitor(era, nil)
		w := writer{rand.New(rand.NewPCG(7, uint64(n))), 10}
		for i := range count {
			arguments := w.object(0, 0)
			got := v.call("look", arguments)
			if !got.ran() {
				t.Errorf("%s, call %d: %s to %.300q", era, i, got, arguments)
				continue
			}
			sent = append(sent, arguments)
		}
	}
	var arrived []string
	for _, g := range s.rec.Executed() {
		var params struct {
			Arguments jsontext.Value `json:"arguments"`
		}
		orFail(t, json.Unmarshal(g.Params, &params))
		arrived = append(arrived, string(params.Arguments))
	}
	if len(arrived) != len(sent) {
		t.Fatalf("%d calls arrived, and %d were sent", len(arrived), len(sent))
	}
	for i := range sent {
		if arrived[i] != sent[i] {
			t.Fatalf("call %d: arrived %q, sent %q", i, arrived[i], sent[i])
		}
	}
}

// What is beyond the limits of anybody on the way is refused, and does not arrive.
func TestArgumentsBeyondTheLimits(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	nested := func(n int, open, inside, end string) string {
		return `{"a":` + strings.Repeat(open, n) + inside + strings.Repeat(end, n) + `}`
	}
	many := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each+",", n), ",") }
	var members []string
	for i := range 300_000 {
		members = append(members, `"`+strconv.Itoa(i)+`":1`)
	}
	for name, arguments := range map[string]string{
		"too deep for a message": nested(40, `{"a":`, "1", "}"),
		"too deep for the PDP":   nested(20, `{"a":`, "1", "}"),
		"1,000 arrays":           nested(1000, "[", "", "]"),
		"arrays in arrays":       nested(5, "[", "", "]"),
		"a long array":           `{"a":[` + many(5000, "1") + `]}`,
		"a long array of arrays": `{"a":[` + many(200, "[]") + `]}`,
		"too many values":        `{` + strings.Join(members[:19_000], ",") + `}`,
		"many more values":       `{` + strings.Join(members, ",") + `}`,
		"too large":              `{"a":"` + strings.Repeat("x", 513<<10) + `"}`,
		"too large a body":       `{"a":"` + strings.Repeat("x", 2<<20) + `"}`,
		"beyond a double":        `{"a":1e400}`,
		"minus nothing":          `{"a":-0}`,
		"twice":                  `{"a":1,"a":1}`,
		"twice, escaped":         `{"a":1,"\u0061":2}`,
		"twice, deep":            `{"b":[{"a":1,"a":1}]}`,
		"lone surrogate":         `{"a":"\ud800"}`,
		"no UTF-8":               "{\"a\":\"\xff\"}",
		"overlong UTF-8":         "{\"a\":\"\xc0\xaf\"}",
		"not a number":           `{"a":NaN}`,
		"comment":                `{"a":1/**/}`,
		"trailing comma":         `{"a":1,}`,
		"an array":               `[1]`,
		"a string":               `"{}"`,
		"null":                   `null`,
		"a number":               `1`,
		"bare":                   `{a:1}`,
		"single quotes":          `{'a':1}`,
		"a control character":    "{\"a\":\"\x01\"}",
	} {
		for _, era := range eras {
			v := s.visitor(era, nil)
			if got := v.call("look", arguments); got.ran() || got.fault == nil || got.result != nil {
				t.Errorf("%s, %s: %s", name, era, got)
			}
		}
	}
	s.untouched(t)
}

// Members that nobody knows survive: of tools, of calls, and of results.
func TestUnknownMembersSurvive(t *testing.T) {
	t.Parallel()
	const (
		tool   = `{"name":"odd", "x-unknown" :{"b":1,"a":1.0,"A":[null]},"inputSchema":{"type":"object","$defs":{"z":true},"x-y":1e2},"Title":"\u00e9"}`
		result = `"content":[{"type":"text","text":"ran","x-more":{"b":1,"a":1.0}}],"x-result":[1.0,null,{"k":"\u006b"}],"structuredContent":{"n":9007199254740993}`
	)
	for _, server := range eras {
		s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{server}, Tools: "[" + tool + "]", Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			if c.Modern {
				c.Result(`{"resultType":"complete",` + result + `}`)
			} else {
				c.Result(`{` + result + `}`)
			}
			return true
		}}})
		for _, era := range eras {
			name := fmt.Sprintf("%s client, %s server", era, server)
			v := s.visitor(era, nil)
			if got := v.ask("tools/list", `{}`); !strings.Contains(got.text, tool) {
				t.Errorf("%s: the tool is not listed as it is: %s", name, got)
			}
			got := v.ask("tools/call", `{"name":"odd","x-call":{"b":1,"a":1.0},"arguments":{"q":"\u00e9"},"x-more":null}`)
			if !got.ran() || !strings.Contains(got.text, result) {
				t.Errorf("%s: the result is not as it was: %s", name, got)
			}
			all := s.rec.Executed()
			if last := string(all[len(all)-1].Params); !strings.Contains(last, `"x-call":{"b":1,"a":1.0},"arguments":{"q":"\u00e9"},"x-more":null`) {
				t.Errorf("%s: the server got %s", name, last)
			}
		}
	}
}
