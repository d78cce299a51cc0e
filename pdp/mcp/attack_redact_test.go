package mcp_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/mcptest"
)

// ssn is what is to be taken out of a result. Neither it, nor its Base64, nor both of its halves may leave.
const ssn = "S3cr3t-123-45-6789"

var ssnInBase64 = base64.StdEncoding.EncodeToString([]byte(ssn))

// evasion is an answer that has the value where it is not looked for first.
type evasion struct {
	// result, or the rest of an error, is what the server answers; before are messages that come before it.
	result, fault string
	before        []string
	// code is 0 if a result leaves. Failed says that the obligation is then on record as failed, and has is what must leave.
	code   int
	failed bool
	has    string
	modern bool // there is no such thing in the legacy era
}

// evasions have "data": {"ssn"} where the value is expected, and it is somewhere else besides.
func evasions() map[string]evasion {
	const structured = `"structuredContent":{"ssn":"` + ssn + `","n":1}`
	half, rest := ssn[:9], ssn[9:]
	text := func(s string) string { return `{"type":"text","text":` + inText(s) + `}` }
	note := func(method, params string) string {
		return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{` + params + `}}`
	}
	return map[string]evasion{
		"what is asked for":       {result: `"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"` + ssn + `","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"` + ssn + `"`, code: -32603, failed: true, modern: true},
		"the name of an answer":   {result: `"resultType":"input_required","inputRequests":{"` + ssn + `":{"method":"elicitation/create",` + askedForm + `}}`, code: -32603, failed: true, modern: true},
		"where it is expected":    {result: structured, has: `"n":1`},
		"two blocks":              {result: structured + `,"content":[` + text(half) + `,` + text(rest) + `]`, has: `"n":1`},
		"two blocks of JSON":      {result: structured + `,"content":[` + text(`{"a":"`+half+`"}`) + `,` + text(`["`+rest+`"]`) + `]`, code: -32603, failed: true},
		"two members":             {result: `"structuredContent":{"ssn":"` + ssn + `","a":{"b":"` + half + `"},"c":["` + rest + `"]}`, code: -32603, failed: true},
		"a block in Base64":       {result: structured + `,"content":[` + text(ssnInBase64) + `]`, has: `"n":1`},
		"a member in Base64":      {result: `"structuredContent":{"ssn":"` + ssn + `","n":1,"b":"` + ssnInBase64 + `"}`, has: `"n":1`},
		"a document in Base64":    {result: `"structuredContent":{"ssn":"` + ssn + `","n":1,"b":"` + base64.URLEncoding.EncodeToString([]byte(`{"x":"`+ssn+`"}`)) + `"}`, has: `"n":1`},
		"a text with JSON":        {result: structured + `,"content":[` + text(`{"ssn":"`+ssn+`","of":"`+ssn+`"}`) + `]`, has: `"of\":\"[redacted]`},
		"JSON in a text of it":    {result: structured + `,"content":[` + text(`{"log":`+inText(`{"ssn":"`+ssn+`"}`)+`}`) + `]`, has: `"n":1`},
		"a name":                  {result: `"structuredContent":{"ssn":"` + ssn + `","n":1,"of ` + ssn + `":true}`, has: `"n":1`},
		"an image":                {result: structured + `,"content":[{"type":"image","data":"` + ssnInBase64 + `","mimeType":"image/png"}]`, has: `"n":1`},
		"a resource":              {result: structured + `,"content":[{"type":"resource","resource":{"uri":"mem://` + ssn + `","text":"` + ssn + `"}},{"type":"resource_link","uri":"mem://` + ssn + `","name":"a"}]`, has: `"n":1`},
		"a new kind of block":     {result: structured + `,"content":[{"type":"hologram","x":"` + ssn + `"}]`, has: `"n":1`},
		"annotations":             {result: structured + `,"content":[{"type":"text","text":"{}","annotations":{"x":"` + ssn + `"},"_meta":{"x":"` + ssn + `"}}]`, has: `"n":1`},
		"_meta":                   {result: structured + `,"_meta":{"x":"` + ssn + `"}`, has: `"n":1`},
		"a member nobody knows":   {result: structured + `,"more":"` + ssn + `"`, has: `"n":1`},
		"isError":                 {result: structured + `,"isError":"` + ssn + `"`, has: `"n":1`},
		"no object":               {result: `"structuredContent":"` + ssn + `"`, code: -32603, failed: true},
		"no list":                 {result: structured + `,"content":"` + ssn + `"`, code: -32603, failed: true},
		"a member twice":          {result: `"structuredContent":{"ssn":"a","ssn":"` + ssn + `"}`, code: -32603},
		"a member twice, escaped": {result: `"structuredContent":{"ssn":"a","\u0073sn":"` + ssn + `"}`, code: -32603},
		"twice in a text":         {result: structured + `,"content":[` + text(`{"ssn":"a","ssn":"`+ssn+`"}`) + `]`, has: `"n":1`},
		"error.message":           {fault: `"code":-32000,"message":"` + ssn + `"`, code: -32000},
		"error.data":              {fault: `"code":-32000,"message":"m","data":{"ssn":"` + ssn + `"}`, code: -32000},
		"beside error.data":       {fault: `"code":-32000,"message":"m","more":"` + ssn + `"`, code: -32000},
		"pages to open":           {fault: `"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","message":"` + ssn + `","url":"https://good.example/` + ssn + `"}]}`, code: -32603},
		"progress": {before: []string{
			note("progress", `"progressToken":TOKEN,"progress":1,"message":"`+ssn+`"`), note("progress", `"progressToken":TOKEN,"progress":2,"total":"`+ssn+`","_meta":{"x":"`+ssn+`"}`),
			note("progress", `"progressToken":TOKEN,"progress":"`+ssn+`"`), note("progress", `"progressToken":"`+ssn+`","progress":3`),
		}, result: structured, has: `"n":1`},
		"a log":       {before: []string{note("message", `"level":"error","data":"`+ssn+`"`), note("message", `"level":"error","logger":"`+ssn+`","data":1`)}, result: structured, has: `"n":1`},
		"another way": {before: []string{note(ssn, ``), note("resources/updated", `"uri":"mem://`+ssn+`"`), note("cancelled", `"requestId":1,"reason":"`+ssn+`"`)}, result: structured, has: `"n":1`},
		"a question":  {before: []string{`{"jsonrpc":"2.0","id":"` + ssn + `","method":"elicitation/create","params":{"message":"` + ssn + `","requestedSchema":{"type":"object","properties":{}}}}`}, result: structured, has: `"n":1`},
	}
}

// D38: wherever a server puts what is to be taken out of its result, it does not reach the client: it is taken out, or what
// has it is withheld. A result that is withheld for it is on record as failed.
func TestRedactionEvaded(t *testing.T) {
	t.Parallel()
	all := evasions()
	for _, up := range eras {
		s := newSiege(t, camp{
			policies: map[string]string{
				"a.cedar":          `@id("look") @obligation("mask") permit(principal, action == Action::"tool.invoke", resource); @id("rest") permit(principal, action, resource) unless { action == Action::"tool.invoke" };`,
				"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n",
			},
			change: relays,
			answers: mcptest.Answers{Eras: []string{up}, Handle: func(c *mcptest.Call) bool {
				var params struct {
					Meta      struct{ ProgressToken jsontext.Value } `json:"_meta"`
					Arguments struct{ Is string }
				}
				if c.Method != "tools/call" || json.Unmarshal(c.Params, &params, json.MatchCaseInsensitiveNames(true)) != nil {
					return false
				}
				e := all[params.Arguments.Is]
				for _, m := range e.before {
					c.Message(strings.ReplaceAll(m, "TOKEN", string(params.Meta.ProgressToken)))
				}
				switch {
				case e.fault != "":
					c.Error("{" + e.fault + "}")
				case c.Modern && !e.modern:
					c.Result(`{` + e.result + `,"resultType":"complete"}`)
				default:
					c.Result(`{` + e.result + `}`)
				}
				return true
			}},
		})
		want := map[string]int{}
		for _, v := range []*visitor{s.person(nil), s.listener(nil)} {
			v.meta = `,"progressToken":"p"`
			if v.era == "modern" {
				v.meta += `,"io.modelcontextprotocol/logLevel":"debug"`
			}
			for name, e := range all {
				if e.modern && up == "legacy" {
					continue
				}
				got := v.call("look", `{"is":"`+name+`"}`)
				code := e.code
				if name == "pages to open" && v.era == "modern" && up == "legacy" {
					code = -32021
				}
				if got.code() != code || got.finals != 1 || !strings.Contains(got.text, e.has) {
					t.Errorf("%s to %s, %s: %d answers, %s", v.era, up, name, got.finals, got)
				}
				if e.failed && got.kind() != "withheld" {
					t.Errorf("%s to %s, %s: %s", v.era, up, name, got)
				}
				for _, m := range got.before {
					if !strings.Contains(string(m), `"notifications/progress"`) {
						t.Errorf("%s to %s, %s: %s", v.era, up, name, m)
					}
				}
				if strings.Contains(got.text, ssn) || strings.Contains(got.text, ssnInBase64[:20]) || strings.Contains(got.text, ssn[:9]) && strings.Contains(got.text, ssn[9:]) {
					t.Errorf("%s to %s, %s: it leaves: %s", v.era, up, name, got)
				}
				if e.failed {
					want["failed"]++
				} else {
					want["discharged"]++
				}
			}
		}
		if strings.Contains(s.logs.String(), ssn) {
			t.Errorf("%s: it is in the log", up)
		}
		onRecord := map[string]int{}
		for _, line := range s.records() {
			for _, status := range []string{"failed", "discharged"} {
				if line.Kind == "receipt" && strings.Contains(line.line, `"status":"`+status+`"`) {
					onRecord[status]++
				}
			}
		}
		if onRecord["failed"] != want["failed"] || onRecord["discharged"] != want["discharged"] {
			t.Errorf("%s: on record %v, should be %v", up, onRecord, want)
		}
	}
}
