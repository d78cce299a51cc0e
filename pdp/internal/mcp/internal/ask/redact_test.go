package ask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/rpc"
)

// masked obliges whoever uses anything to take fields out.
func masked(fields ...string) map[string]string {
	list, _ := json.Marshal(fields)
	return map[string]string{"bundle.yaml": "allow_trivial: true\n", "a.cedar": `@obligation("mask") permit(principal, action, resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: " + string(list) + "}}\n"}
}

func (s *stage) permit(op ask.Operation) *ask.Permit {
	s.t.Helper()
	p, refusal := s.Ask(s.t.Context(), op)
	if refusal != nil {
		s.t.Fatalf("%+v", refusal)
	}
	return p
}

func result(text string) rpc.Message { return rpc.Answer(rpc.IntID(1), jsontext.Value(text)) }

const withheldBlock = `{"type":"text","text":"[withheld: this part of the result cannot be shown]"}`

// What leaves of each form of a result. "" is that nothing does.
func TestRedact(t *testing.T) {
	t.Parallel()
	s := open(t, masked("/ssn", "/people/*/ssn", "/list/1", "/a~1b/c~0d", "/deep"))
	call := s.call(alice(t), s.tool(plainTool, nil), `{}`)
	read, prompt := request(alice(t), "resources/read", `{"uri":"mem://a"}`), request(alice(t), "prompts/get", `{"name":"a"}`)
	for name, test := range map[string]struct {
		op        ask.Operation
		text, out string
	}{
		"structured":   {call, `{"structuredContent":{"ssn":"123-45-6789","name":"Ada","n":1.50},"content":[]}`, `{"structuredContent":{"name":"Ada","n":1.50},"content":[]}`},
		"an array":     {call, `{"structuredContent":[{"ssn":"123-45-6789"}]}`, `{"structuredContent":[{"ssn":"123-45-6789"}]}`}, // which the pointers do not lead to
		"each of many": {call, `{"structuredContent":{"people":[{"ssn":"123-45-6789","x":1},{"ssn":null}],"list":[1,2,3],"a/b":{"c~d":5,"e":6}}}`, `{"structuredContent":{"people":[{"x":1},{}],"list":[1,null,3],"a/b":{"e":6}}}`},
		"text":         {call, `{"content":[{"type":"text","text":"{\"ssn\":\"123-45-6789\",\"b\":1}"}]}`, `{"content":[{"type":"text","text":"{\"b\":1}"}]}`},
		"elsewhere": {call, `{"structuredContent":{"ssn":"123-45-6789","number":123456789,"deep":{"x":["s3cr3t",123456789]}},"content":[{"type":"text","text":"{\"note\":\"of 123-45-6789, s3cr3t\",\"as s3cr3t\":1,\"n\":1.23456789e8}"}]}`,
			`{"structuredContent":{"number":null},"content":[{"type":"text","text":"{\"note\":\"of [redacted], [redacted]\",\"n\":null}"}]}`},
		"text before": {call, `{"content":[{"type":"text","text":"{\"note\":\"123-45-6789\"}"}],"structuredContent":{"ssn":"123-45-6789"}}`, `{"content":[{"type":"text","text":"{\"note\":\"[redacted]\"}"}],"structuredContent":{}}`},
		"a number":    {call, `{"structuredContent":{"deep":1.5e5,"n":150000,"m":[150000.0,15],"t":"of 150000"}}`, `{"structuredContent":{"n":null,"m":[null,15],"t":"of [redacted]"}}`},
		"one in one":  {call, `{"structuredContent":{"deep":["abcd","abcdefgh"],"t":"abcdefgh abcde"}}`, `{"structuredContent":{"t":"[redacted] [redacted]e"}}`},
		"in Base64": {call, `{"structuredContent":{"ssn":"123-45-6789","t":"MTIzLTQ1LTY3ODk=","u":"eyJ4IjoiMTIzLTQ1LTY3ODkifQ","v":"of eDEyMy00NS02Nzg5 too","as MTIzLTQ1LTY3ODk":1,"w":"MTIzLTQ1"}}`,
			`{"structuredContent":{"t":"[redacted]","u":"[redacted]","v":"[redacted]","w":"MTIzLTQ1"}}`},
		"in two members":   {call, `{"structuredContent":{"ssn":"123-45-6789","a":"123-45","b":"-6789"}}`, ``},
		"in two blocks":    {call, `{"structuredContent":{"ssn":"123-45-6789"},"content":[{"type":"text","text":"{\"a\":\"x 123-4\"}"},{"type":"text","text":"{\"a\":\"5-67\"}"},{"type":"text","text":"[\"89\"]"}]}`, ``},
		"the mask's own":   {call, `{"structuredContent":{"ssn":"redacted","a":"of redacted","b":"d"}}`, `{"structuredContent":{"a":"of [redacted]","b":"d"}}`},
		"short, in pieces": {call, `{"structuredContent":{"ssn":"1234","a":"12","b":"34","c":"MTIzNA=="}}`, `{"structuredContent":{"a":"12","b":"34","c":"MTIzNA=="}}`},
		"quoted":           {call, `{"structuredContent":{"ssn":"a\"b\"c","log":"{\"ssn\":\"a\\\"b\\\"c\"}"}}`, `{"structuredContent":{"log":"{\"ssn\":\"[redacted]\"}"}}`},
		"plain text":       {call, `{"content":[{"type":"text","text":"her number is 123-45-6789"},{"type":"text","text":"{\"b\":1}"}]}`, `{"content":[` + withheldBlock + `,{"type":"text","text":"{\"b\":1}"}]}`},
		"nearly JSON":      {call, `{"content":[{"type":"text","text":"{\"ssn\":1,\"ssn\":2}"},{"type":"text","text":"{} {}"},{"type":"text","text":"{} x"},{"type":"text","text":"\"a\""},{"type":"text","text":""},{"type":"text"}]}`, `{"content":[` + strings.Repeat(withheldBlock+",", 5) + withheldBlock + `]}`},
		"other blocks":     {call, `{"content":[{"type":"image","data":"eA==","mimeType":"image/png"},{"type":"audio","data":"eA=="},{"type":"resource","resource":{"uri":"x","text":"{}"}},{"type":"resource_link","uri":"x","name":"y"},{"type":"new","x":1},7,null]}`, `{"content":[` + strings.Repeat(withheldBlock+",", 6) + withheldBlock + `]}`},
		"of a block":       {call, `{"content":[{"type":"text","text":"{}","annotations":{"audience":["user"]},"_meta":{"x":1},"more":"y"}]}`, `{"content":[{"type":"text","text":"{}"}]}`},
		"beside":           {call, `{"_meta":{"x":"123-45-6789"},"more":"y","isError":true,"resultType":"complete","ttlMs":0,"cacheScope":"private","content":[]}`, `{"isError":true,"resultType":"complete","ttlMs":0,"cacheScope":"private","content":[]}`},
		"odd beside":       {call, `{"isError":"123-45-6789","ttlMs":"x","cacheScope":"y","content":[]}`, `{"content":[]}`},
		"a scalar":         {call, `{"structuredContent":"123-45-6789"}`, ``},
		"null":             {call, `{"structuredContent":null}`, ``},
		"no array":         {call, `{"content":{"type":"text"}}`, ``},
		"asks":             {call, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"123-45-6789"}}}}`, ``},
		"a task":           {call, `{"resultType":"task","task":{}}`, ``},
		"odd type":         {call, `{"resultType":7}`, ``},
		"deep":             {call, `{"structuredContent":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}`, ``},
		"many values":      {call, `{"structuredContent":[` + strings.Repeat("1,", 200_000) + `1]}`, ``},
		"many":             {call, `{"structuredContent":{"deep":[` + strings.Repeat(`"x",`, 3) + numbers(6000) + `]}}`, ``},
		"read":             {read, `{"contents":[{"uri":"mem://a","mimeType":"application/json","text":"{\"ssn\":\"123-45-6789\"}"},{"uri":"mem://123-45-6789","blob":"eA=="},{"uri":"b","text":"plain"},7]}`, `{"contents":[{"uri":"mem://a","mimeType":"application/json","text":"{}"},{"uri":"mem://[redacted]","text":"[withheld: this part of the result cannot be shown]"},{"uri":"b","text":"[withheld: this part of the result cannot be shown]"},{"uri":"","text":"[withheld: this part of the result cannot be shown]"}]}`},
		"prompt":           {prompt, `{"description":"123-45-6789","messages":[{"role":"assistant","content":{"type":"text","text":"{\"ssn\":1}"}},{"role":"x","content":{"type":"text","text":"plain"}}]}`, `{"messages":[{"role":"assistant","content":{"type":"text","text":"{}"}},{"role":"user","content":` + withheldBlock + `}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.permit(test.op)
			m, refusal := p.Result(result(test.text))
			switch {
			case test.out == "" && (refusal == nil || refusal.Code != -32603 || m.Result != nil || !strings.Contains(string(refusal.Data), `"type":"withheld"`)):
				t.Errorf("%s leaves, %+v", m.Result, refusal)
			case test.out != "" && (refusal != nil || string(m.Result) != test.out || m.ID != rpc.IntID(1)):
				t.Errorf("got  %s\nwant %s\n%+v", m.Result, test.out, refusal)
			}
			p.Done(t.Context())
		})
	}
}

func numbers(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(100_000 + i)
	}
	return strings.Join(all, ",") + `,"` + strings.Join(all, `","x`) + `"`
}

// Of an error, and of what comes before the result, no word leaves while something is to be taken out.
func TestRedactAround(t *testing.T) {
	t.Parallel()
	s := open(t, masked("/ssn"))
	call := s.call(alice(t), s.tool(plainTool, nil), `{}`)
	p := s.permit(call)
	for text, want := range map[string]string{
		`{"code":-32000,"message":"123-45-6789","data":{"ssn":"123-45-6789"}}`: `{"code":-32000,"message":"the request failed; what the server says of it is withheld"}`,
		`{"code":"123-45-6789","message":"x"}`:                                 `{"code":-32603,"message":"the request failed; what the server says of it is withheld"}`,
		`{"code":12345678901234567890,"message":"x"}`:                          `{"code":-32603,"message":"the request failed; what the server says of it is withheld"}`,
		`"123-45-6789"`: `{"code":-32603,"message":"the request failed; what the server says of it is withheld"}`,
	} {
		m, refusal := p.Result(rpc.Message{ID: rpc.IntID(1), Error: jsontext.Value(text)})
		if refusal != nil || string(m.Error) != want || m.Result != nil {
			t.Errorf("%s leaves, %+v", m.Error, refusal)
		}
	}
	if p.Passes() {
		t.Error("what comes before the result passes, and may have the same in it")
	}
	// Without it all is as it was.
	free := open(t, anything)
	q := free.permit(free.call(alice(t), free.tool(plainTool, nil), `{}`))
	if !q.Passes() {
		t.Error("a message does not pass")
	}
	if out, refusal := q.Result(result(`{"_meta":{"a":1},"content":7}`)); refusal != nil || string(out.Result) != `{"_meta":{"a":1},"content":7}` {
		t.Errorf("%s, %+v", out.Result, refusal)
	}
	// Where a result has no data that it could be done to, it is not promised, and so denied.
	for _, method := range []string{"tools/list", "logging/setLevel", "completion/complete"} {
		op := request(alice(t), method, `{"level":"info","ref":{"type":"ref/prompt","name":"x"}}`)
		if got, refusal := s.outcome(op); refusal == nil || refusal.Code != -32001 {
			t.Errorf("%s: %s", method, got)
		}
	}
	// Fields that are no pointers are not promised either.
	for _, fields := range [][]string{{}, {"ssn"}, {"/a", ""}} {
		odd := open(t, masked(fields...))
		if got, refusal := odd.outcome(odd.call(alice(t), odd.tool(plainTool, nil), `{}`)); refusal == nil || refusal.Code != -32001 {
			t.Errorf("%q: %s", fields, got)
		}
	}
}

// Whatever a server makes of its result, a value that is to be taken out of it does not leave in any form that can be read.
func TestSecretNeverLeaves(t *testing.T) {
	t.Parallel()
	s := open(t, masked("/secret", "/rows/*/secret"))
	p := s.permit(s.call(alice(t), s.tool(plainTool, nil), `{}`))
	left := 0
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 7))
		g := generator{r, randomSecret(r)}
		text := g.result()
		m, refusal := p.Result(result(text))
		if refusal != nil {
			continue
		}
		left++
		if !m.Result.IsValid() {
			t.Fatalf("seed %d: %s\nleaves as %s", seed, text, m.Result)
		}
		if found := readable(m.Result, g.secret); found {
			t.Fatalf("seed %d: the secret %q of\n%s\nleaves in\n%s", seed, g.secret, text, m.Result)
		}
	}
	if left < 1000 {
		t.Errorf("only %d results left", left)
	}
}

func randomSecret(r *rand.Rand) string {
	letters := []rune("abcXYZ0189-_ \"\\/é✓{}[]:,\n")
	secret := make([]rune, 6+r.IntN(12))
	for n := range secret {
		secret[n] = letters[r.IntN(len(letters))]
	}
	return string(secret)
}

// readable reports whether a secret stands in a text, or in a string or a name of it, or in a text that such a string is.
func readable(v jsontext.Value, secret string) bool {
	var whole any
	if json.Unmarshal(v, &whole) != nil {
		return false
	}
	var in func(any) bool
	in = func(part any) bool {
		switch v := part.(type) {
		case string:
			return strings.Contains(v, secret) || (strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[")) && readable(jsontext.Value(v), secret)
		case []any:
			return slices.ContainsFunc(v, in)
		case map[string]any:
			for name, m := range v {
				if strings.Contains(name, secret) || in(m) {
					return true
				}
			}
		}
		return false
	}
	return in(whole)
}

// generator makes results that have the secret where it is to be taken out, and anywhere else.
type generator struct {
	*rand.Rand
	secret string
}

func (g generator) result() string {
	members := []string{`"structuredContent":` + g.object(3, true)}
	blocks := make([]string, g.IntN(4))
	for n := range blocks {
		blocks[n] = g.block()
	}
	members = append(members, `"content":[`+strings.Join(blocks, ",")+`]`)
	if g.IntN(2) == 0 {
		members = append(members, `"_meta":`+g.object(2, false))
	}
	if g.IntN(3) == 0 {
		members = append(members, `"isError":`+g.value(1))
	}
	if g.IntN(3) == 0 {
		members = append(members, quote(g.word())+`:`+g.value(2))
	}
	g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

func (g generator) block() string {
	switch g.IntN(5) {
	case 0:
		return `{"type":"image","data":` + quote(g.secret) + `}`
	case 1:
		return `{"type":"text","text":` + quote("it is "+g.secret) + `}`
	case 2:
		return `{"type":` + quote(g.word()) + `,"text":` + quote(g.secret) + `}`
	}
	return `{"type":"text","text":` + quote(g.object(2, g.IntN(2) == 0)) + `,"annotations":` + g.value(1) + `}`
}

func (g generator) object(depth int, has bool) string {
	members := map[string]string{}
	for range g.IntN(4) {
		members[g.word()] = g.value(depth)
	}
	if has {
		members["secret"] = []string{quote(g.secret), `["x",` + quote(g.secret) + `]`, `{"v":` + quote(g.secret) + `}`}[g.IntN(3)]
	}
	if g.IntN(3) == 0 {
		members["rows"] = `[{"secret":` + quote(g.secret) + `,"n":1},` + g.value(1) + `]`
	}
	var all []string
	for name, v := range members {
		all = append(all, quote(name)+":"+v)
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ",") + "}"
}

func (g generator) value(depth int) string {
	switch n := g.IntN(8); {
	case n == 0 && depth > 0:
		return g.object(depth-1, false)
	case n == 1 && depth > 0:
		return "[" + g.value(depth-1) + "," + g.value(depth-1) + "]"
	case n == 2:
		return quote(g.secret)
	case n == 3:
		return quote("before " + g.secret + g.secret + " after")
	case n == 4:
		return quote(`{"nested":` + quote(g.secret) + `}`)
	case n == 5:
		return "true"
	}
	return quote(g.word())
}

func (g generator) word() string {
	return []string{"name", "a", "b", "of " + g.secret, "rows", "text", "resultType "}[g.IntN(7)]
}

func quote(s string) string { return string(rpc.String(s)) }

// Receipts say what became of each obligation, when all is over: also of a redaction that could not be done.
func TestReceipts(t *testing.T) {
	t.Parallel()
	bundle := map[string]string{"a.cedar": `@id("t") @obligation("log, mask") permit(principal, action == Action::"tool.invoke", resource);
			@id("d") @obligation("log") permit(principal, action == Action::"declared", resource);
			@id("no") @obligation("alarm") forbid(principal, action == Action::"tool.invoke", resource == tool::"jira-server-1:kept");
			@id("n") @obligation("alarm") permit(principal, action == Action::"resources/read", resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\nalarm: {type: notification, properties: {to: ops, body: b}}\n"}
	said := map[string]int{}
	handlers := obligations.Handlers{
		"log": func(_ context.Context, o evaluation.Obligation) error { said["log"]++; return nil },
		"notification": func(context.Context, evaluation.Obligation) error {
			said["alarm"]++
			return errors.New("hunter2")
		},
	}
	s := open(t, bundle, func(o *ask.Options) { o.Handlers = handlers })
	for _, text := range []string{`{"structuredContent":{"ssn":1}}`, `{"structuredContent":"hunter2"}`} {
		p := s.permit(s.call(alice(t), s.tool(declares("a", `{"evaluation":{"action":{"name":"declared"},"resource":{"type":"x","id":"1"}}}`), nil), `{}`))
		if _, refusal := p.Result(result(text)); (refusal != nil) != strings.Contains(text, "hunter2") {
			t.Errorf("%+v", refusal)
		}
		p.Done(t.Context())
		p.Done(t.Context())
	}
	if got, _ := s.outcome(s.call(alice(t), s.tool(`{"name":"kept"}`, nil), `{}`)); !strings.Contains(got, "-32001") || strings.Contains(got, "hunter2") {
		t.Error(got)
	}
	if got, _ := s.outcome(request(alice(t), "resources/read", `{"uri":"x"}`)); !strings.Contains(got, "-32001") || strings.Contains(got, "hunter2") {
		t.Errorf("an obligation that was not discharged: %s", got)
	}
	var got []string
	for _, line := range s.records(format.KindReceipt) {
		details := line["details"].(map[string]any)
		var parts []string
		for _, o := range details["obligations"].([]any) {
			o := o.(map[string]any)
			parts = append(parts, fmt.Sprintf("%v %v", o["id"], o["status"]))
		}
		got = append(got, strings.Join(parts, ", "))
	}
	slices.Sort(got)
	want := []string{"alarm failed", "alarm failed", "log discharged", "log discharged", "log discharged, mask discharged", "log discharged, mask failed"}
	if !slices.Equal(got, want) || said["log"] != 4 || said["alarm"] != 2 {
		t.Errorf("got  %q\nwant %q\n%v", got, want, said)
	}
	for _, name := range []string{"redact", "approval_required"} {
		if _, err := ask.New(ask.Options{PDP: s.clients(), Resource: resource, Handlers: obligations.Handlers{name: handlers["log"]}}); err == nil {
			t.Errorf("%s has a handler", name)
		}
	}
}
