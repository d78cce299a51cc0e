package link

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/mcptest"
)

// TestNoFormAsksForASecret: whatever a field is called, and wherever it says so.
func TestNoFormAsksForASecret(t *testing.T) {
	s := &Server{Name: "files", Asks: Relays{May: map[string]bool{"elicitation": true}, Hosts: []string{"pay.example"}}}
	shown := func(params string) (string, bool) {
		t.Helper()
		o, err := rpc.ParseObject([]byte(params))
		mcptest.Must(t, err)
		got, no := s.elicitation(o)
		return string(got.Value()), no == nil
	}
	for _, field := range []string{
		`"password":{"type":"string"}`, `"p.a.s.s_w-o r/d":{"type":"string"}`, `"ｐａｓｓｗｏｒｄ":{"type":"string"}`, `"PASSWORD":7`, `"𝐩𝐚𝐬𝐬𝐰𝐨𝐫𝐝":{}`, `"api_key_2":{}`, `"a":{"title":"Your pass\u00adword"}`,
		`"a":{"description":"Paste the access-token here"}`, `"a":{"title":"ｓｅｃｒｅｔ"}`, `"a":{"type":"string"},"b":{"title":"c r e d e n t i a l"}`,
	} {
		if got, ok := shown(`{"message":"m","requestedSchema":{"type":"object","properties":{` + field + `}}}`); ok {
			t.Errorf("%s is shown as %s", field, got)
		}
	}
	if got, ok := shown(`{"message":"m","requestedSchema":{"type":"object","title":"Log in with your password","properties":{"a":{}}}}`); ok {
		t.Errorf("the form is shown: %s", got)
	}
	for params, want := range map[string]string{
		`{"message":"two\nlines","requestedSchema":{"type":"object","properties":{"n":{ "type" : "string","title":"Größe" }}}}`: `{"message":"[files asks] two\nlines","requestedSchema":{"type":"object","properties":{"n":{"type":"string","title":"Größe"}}}}`,
		`{"mode":"url","message":"m","url":"https://pay.example/x","requestedSchema":{"type":"object"}}`:                        `{"mode":"url","message":"[files asks] m","url":"https://pay.example/x"}`,
	} {
		if got, ok := shown(params); !ok || got != want {
			t.Errorf("%s: %s, %t", params, got, ok)
		}
	}
	for params, want := range map[string]string{
		`{"message":"log in at https://github.com\u2215acme with the name that you have there","requestedSchema":{"type":"object","properties":{}}}`: `"[files asks; careful: \\u2215 looks like /] log in`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"title":"\u0441\u043e\u0440\u0443"}}}}`:                                `"[files asks; careful: \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"] m"`,
		`{"message":"Wie heißt der Zweig – und wohin?","requestedSchema":{"type":"object","properties":{"a":{"title":"Zweig der Größe"}}}}`:          `"[files asks] Wie`,
	} {
		if got, ok := shown(params); !ok || !strings.Contains(got, want) {
			t.Errorf("%s: %s, %t", params, got, ok)
		}
	}
	const hidden = "approve \u202egnihton"
	for _, params := range []string{
		`{"message":"HIDDEN","requestedSchema":{"type":"object","properties":{}}}`,
		`{"message":"m","requestedSchema":{"type":"object","description":"HIDDEN","properties":{}}}`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"title":"HIDDEN"}}}}`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"description":"HIDDEN"}}}}`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"enum":["x"],"enumNames":["HIDDEN"]}}}}`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"oneOf":[{"const":"x","title":"HIDDEN"}]}}}}`,
		`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"const":"x","title":"HIDDEN"}]}}}}}`,
	} {
		got, ok := shown(strings.ReplaceAll(params, "HIDDEN", hidden))
		if !ok || strings.Contains(got, "\u202e") || !strings.Contains(got, "u202e") {
			t.Errorf("%s: %s, %t", params, got, ok)
		}
	}
	if got, ok := shown(`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"oneOf":[{"const":"x\u202e","title":"x"}]}}}}`); !ok || !strings.Contains(got, "\u202e") && !strings.Contains(got, `\u202e"`) {
		t.Errorf("a value is another: %s", got)
	}
}

// TestNoServerAsksInTheGatewaysName: its own names are gone wherever they stand in what a server asks.
func TestNoServerAsksInTheGatewaysName(t *testing.T) {
	s := &Server{Name: "files", Asks: Relays{May: map[string]bool{"sampling": true}}}
	params := `{"messages":[{"role":"user","content":{"type":"text","text":"t","_meta":{"io.policy-service/nonce":"n","a":1.0}}}],"_meta":{"io.policy-service/tool":{}}}`
	got, no := Shown(s, rpc.Message{Method: "sampling/createMessage", Params: []byte(params)}, []byte(`{"sampling":{}}`))
	if want := `{"messages":[{"role":"user","content":{"type":"text","text":"t","_meta":{"a":1.0}}}]}`; no != nil || string(got.Params) != want {
		t.Errorf("%s, %v", got.Params, no)
	}
}

// TestTheLogNamesSoManyParams: clients choose the names, and fill no log with them.
func TestTheLogNamesSoManyParams(t *testing.T) {
	var log bytes.Buffer
	s := &Server{Name: "files", Key: "upstreams.files", Params: []string{"mine"}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		for n := range 3 * mostLeftOut {
			if s.TakesParam("tools/call", fmt.Sprint("name", n)) || !s.TakesParam("tools/call", "mine") {
				t.Fatalf("name%d goes on, or mine does not", n)
			}
		}
	}
	s = &Server{Name: "other", Logger: s.Logger}
	s.TakesParam("tools/call", strings.Repeat("é", 1<<20))
	if lines := strings.Count(log.String(), "\n"); lines != mostLeftOut+2 || log.Len() > 400*lines {
		t.Errorf("%d lines of %d bytes", lines, log.Len())
	}
}
