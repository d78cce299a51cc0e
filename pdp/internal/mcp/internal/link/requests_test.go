package link

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// relaying is a server that may ask people, and have them open pages of one host.
var relaying = &Server{Name: "files", Asks: Relays{May: map[string]bool{"elicitation": true}, Hosts: []string{"pay.example"}}}

// shown is a question of the server as clients get it, or the reason why they do not.
func shown(t testing.TB, params string) (got, why string) {
	t.Helper()
	o, err := rpc.ParseObject([]byte(params))
	mcptest.Must(t, err)
	built, no := relaying.elicitation(o)
	if no != nil {
		return "", no.Why
	}
	return string(built.Value()), ""
}

func ofFields(fields string) string {
	return `{"message":"m","requestedSchema":{"type":"object","properties":{` + fields + `}}}`
}

// TestFormIsBuiltAgain: it has what MCP's restricted schema has, and nothing beside.
func TestFormIsBuiltAgain(t *testing.T) {
	const (
		root  = `{"mode":"form","message":"m","_meta":{"a":1},"metadata":{"a":1},"Message":"n","title":"t","elicitationId":"e","requestedSchema":{"$schema":"x","title":"Approve","description":"d","$defs":{},"additionalProperties":true,"type":"object","properties":{FIELDS},"required":["a","b",7]}}`
		built = `{"mode":"form","message":"[files asks] m","requestedSchema":{"type":"object","properties":{FIELDS},"required":["a"]}}`
	)
	for came, want := range map[string]string{
		`"a":{ "type":"string","title":"Größe","description":"two\nlines","minLength":1,"maxLength":2,"format":"uri","default":"x","pattern":"p","x-label":"l","examples":["e"]}`: `"a":{"type":"string","title":"Größe","description":"two lines","minLength":1,"maxLength":2,"format":"uri","default":"x"}`,
		`"a":{"type":"string","format":"password","minLength":"1","default":7,"readOnly":true,"const":"c"}`:                                                                       `"a":{"type":"string"}`,
		`"a":{"type":"integer","minimum":1,"maximum":2,"default":1,"minLength":3,"title":7}`:                                                                                      `"a":{"type":"integer","minimum":1,"maximum":2,"default":1}`,
		`"a":{"type":"number","default":"1"},"b":{"type":"boolean","default":true,"enum":["x"]}`:                                                                                  `"a":{"type":"number"},"b":{"type":"boolean","default":true}`,
		`"a":{"type":"string","enum":["x","C:\\y"],"enumNames":["X","Y\u202e"],"oneOfs":1}`:                                                                                       `"a":{"type":"string","enum":["x","C:\\y"],"enumNames":["X","Y\\u202e"]}`,
		`"a":{"type":"string","enum":["x","y"],"enumNames":["X"]}`:                                                                                                                `"a":{"type":"string","enum":["x","y"]}`,
		`"a":{"type":"string","enum":["x","y"],"enumNames":["X"," "]}`:                                                                                                            `"a":{"type":"string","enum":["x","y"]}`,
		`"a":{"type":"string","enum":["z"],"oneOf":[{"const":"x","title":"X","description":"d"},{"const":"y","title":"\t"}]}`:                                                     `"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"y"}]}`,
		`"a":{"type":"array","minItems":1,"items":{"type":"string","enum":["x"],"title":"t"},"default":["x"]}`:                                                                    `"a":{"type":"array","minItems":1,"items":{"type":"string","enum":["x"]},"default":["x"]}`,
		`"a":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}],"enum":["z"]},"uniqueItems":true}`:                                                                      `"a":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}`,
		`"a":{"type":"string","title":" \n","default":"x\u200b"}`:                                                                                                                 `"a":{"type":"string"}`,
		`"a":{"type":"array","items":{"type":"string","enum":["x"]},"default":["x\u200b"]}`:                                                                                       `"a":{"type":"array","items":{"type":"string","enum":["x"]}}`,
	} {
		got, why := shown(t, strings.Replace(root, "FIELDS", came, 1))
		wanted := strings.Replace(built, "FIELDS", want, 1)
		if strings.Contains(came, `"b":`) {
			wanted = strings.Replace(wanted, `"required":["a"]`, `"required":["a","b"]`, 1)
		}
		if got != wanted {
			t.Errorf("%s\nis  %s %s\nnot %s", came, got, why, wanted)
		}
	}
	for _, came := range []string{
		`"a":7`, `"a":{}`, `"a":{"type":"object","properties":{}}`, `"a":{"anyOf":[{"type":"string"}]}`, `"a":{"$ref":"#/$defs/x"}`,
		`"a":{"type":"array"}`, `"a":{"type":"array","items":{"type":"object"}}`, `"a":{"type":"array","items":[]}`,
		`"a":{"type":"string","enum":"x"}`, `"a":{"type":"string","enum":[1]}`, `"a":{"type":"string","oneOf":[{"title":"X"}]}`, `"a":{"type":"string","oneOf":["x"]}`,
	} {
		if got, why := shown(t, ofFields(came)); why != noField && why != noChoices {
			t.Errorf("%s is shown as %s, %s", came, got, why)
		}
	}
}

// TestFormOfEveryKindIsKept: what the SDKs in TypeScript, Go and Python write reaches clients as it is, but for what MCP lacks.
func TestFormOfEveryKindIsKept(t *testing.T) {
	for _, field := range []string{
		`{"title":"String","type":"string","description":"Your full, legal name"}`, `{"title":"Boolean","type":"boolean","description":"Agree to the terms and conditions"}`,
		`{"title":"String with default","type":"string","default":"It was a dark and stormy night."}`, `{"title":"Mail","type":"string","format":"email"}`, `{"type":"string","format":"uri"}`,
		`{"type":"string","format":"date"}`, `{"type":"string","format":"date-time"}`, `{"type":"string","minLength":2,"maxLength":5}`, `{"title":"Integer","type":"integer","minimum":1,"maximum":100,"default":42}`,
		`{"title":"Number","type":"number","minimum":0,"maximum":1000,"default":3.14}`, `{"default":false,"title":"E","type":"boolean"}`, `{"type":"string","enum":["Monica","Rachel"],"default":"Monica"}`,
		`{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["Guitar","Piano"]},"default":["Guitar"]}`, `{"type":"string","oneOf":[{"const":"hero-1","title":"Green Lantern"}],"default":"hero-1"}`,
		`{"type":"array","items":{"anyOf":[{"const":"fish-1","title":"Tuna"}]},"default":["fish-1"]}`, `{"type":"string","enum":["pet-1","pet-2"],"enumNames":["Cats","Dogs"],"default":"pet-1"}`,
	} {
		want := `{"message":"[files asks] m","requestedSchema":{"type":"object","properties":{"a":` + field + `}}}`
		if got, why := shown(t, ofFields(`"a":`+field)); got != want {
			t.Errorf("%s\nis  %s %s", field, got, why)
		}
	}
}

// TestFormMayHaveNulls: a field that may be null is what it is otherwise, by the same rules. The first ones are as Python's SDK
// writes a model with optional fields.
func TestFormMayHaveNulls(t *testing.T) {
	for came, want := range map[string]string{
		`{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"title":"F"}`:                                                   `{"type":"string","title":"F"}`,
		`{"anyOf":[{"maximum":9,"minimum":1,"type":"integer"},{"type":"null"}],"default":null,"description":"How many","title":"N"}`: `{"maximum":9,"minimum":1,"type":"integer","description":"How many","title":"N"}`,
		`{"anyOf":[{"type":"string"},{"type":"null"}],"default":"x","title":"I"}`:                                                    `{"type":"string","default":"x","title":"I"}`,
		`{"anyOf":[{"type":"number"},{"type":"null"}],"default":2.5,"title":"J"}`:                                                    `{"type":"number","default":2.5,"title":"J"}`,
		`{"anyOf":[{"type":"boolean"},{"type":"null"}],"default":true,"title":"K"}`:                                                  `{"type":"boolean","default":true,"title":"K"}`,
		`{"anyOf":[{"maxLength":5,"pattern":"a","type":"string"},{"type":"null"}],"default":null}`:                                   `{"maxLength":5,"type":"string"}`,
		`{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"enum":["x","y"],"enumNames":["X","Y"]}`:                        `{"type":"string","enum":["x","y"],"enumNames":["X","Y"]}`,
		`{"anyOf":[{"type":"string"},{"type":"null"}],"oneOf":[{"const":"x","title":"X"}]}`:                                          `{"type":"string","oneOf":[{"const":"x","title":"X"}]}`,
		`{"anyOf":[{"enum":["x","y"],"type":"string"},{"type":"null"}],"default":null}`:                                              `{"enum":["x","y"],"type":"string"}`,
		`{"anyOf":[{"items":{"type":"string"},"type":"array"},{"type":"null"}],"default":null,"items":{"enum":["x","y"]}}`:           `{"type":"array","items":{"type":"string","enum":["x","y"]}}`,
		`{"anyOf":[{"format":"date-time","type":"string"},{"type":"null"}],"default":null}`:                                          `{"format":"date-time","type":"string"}`,

		`{"anyOf":[{"type":"null","title":"none"},{"type":"string","title":"inner"}],"title":"outer\u202e"}`:       `{"type":"string","title":"outer\\u202e"}`,
		`{"oneOf":[{"type":"string","oneOf":[{"const":"x"}],"x-label":"l"},{"type":"null"}],"x-label":"l"}`:        `{"type":"string","oneOf":[{"const":"x","title":"x"}]}`,
		`{"anyOf":[{"type":"string","anyOf":[{"type":"object"}]},{"type":"null"}],"default":"x\u200b","$ref":"#"}`: `{"type":"string"}`,
		`{"type":["string","null"],"title":"T"}`:  `{"type":"string","title":"T"}`,
		`{"type":["null","integer"],"default":1}`: `{"type":"integer","default":1}`,
	} {
		for _, required := range []string{"", `,"required":["a"]`} { // an answer may lack it, or not, as the server says
			form := func(field string) string {
				return `"requestedSchema":{"type":"object","properties":{"a":` + field + `}` + required + `}}`
			}
			if got, why := shown(t, `{"message":"m",`+form(came)); got != `{"message":"[files asks] m",`+form(want) {
				t.Errorf("%s\nis  %s %s\nnot %s", came, got, why, want)
			}
		}
	}
	for came, want := range map[string]string{
		`{"anyOf":[{"type":"string"},{"type":"integer"}]}`:                          noField,
		`{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}`:          noField,
		`{"anyOf":[{"type":"string"},{"type":"string"}]}`:                           noField,
		`{"anyOf":[{"type":"null"},{"type":"null"}]}`:                               noField,
		`{"anyOf":[{"type":"null"}]}`:                                               noField,
		`{"anyOf":[{"type":"object"},{"type":"null"}]}`:                             noField,
		`{"anyOf":[{"$ref":"#/$defs/x"},{"type":"null"}]}`:                          noField,
		`{"anyOf":[{"anyOf":[{"type":"string"},{"type":"null"}]},{"type":"null"}]}`: noField,
		`{"anyOf":[{"type":["string","null"]},{"type":"null"}]}`:                    noField,
		`{"anyOf":["string","null"]}`:                                               noField,
		`{"anyOf":{"type":"null"}}`:                                                 noField,
		`{"anyOf":[{"items":{"type":"string"},"type":"array"},{"type":"null"}]}`:    noChoices,
		`{"type":["string","integer"]}`:                                             noField,
		`{"type":["null","null"]}`:                                                  noField,
		`{"type":["string","null","null"]}`:                                         noField,
		`{"type":[{"type":"null"},"string"]}`:                                       noField,
		`{"type":"null"}`:                                                           noField,
		`{"type":["string","null"],"enum":["x","y\u200b"]}`:                         unseen,
		`{"anyOf":[{"type":"string","enum":["x\u202e"]},{"type":"null"}]}`:          unseen,
		`{"anyOf":[{"type":"string"},{"type":"null"}],"title":"Your P\u0456N"}`:     noSecret,
		`{"anyOf":[{"type":"string","description":"Your pwd"},{"type":"null"}]}`:    noSecret,
		`{"oneOf":[{"type":"null"},{"type":"string","enum":["password"]}]}`:         noSecret,
		`{"anyOf":[{"type":"string"},{"type":"null"}],"default":"recovery code"}`:   noSecret,
		`{"type":["null","string"],"title":"One-time code"}`:                        noSecret,
	} {
		if got, why := shown(t, ofFields(`"a":`+came)); why != want {
			t.Errorf("%s is shown as %s, %s", came, got, why)
		}
	}
}

// TestFormIsSeen: no text of a form has what cannot be seen, and what comes back in the answer is what a person sees.
func TestFormIsSeen(t *testing.T) {
	const hidden = "approve \\u202egnihton"
	for _, params := range []string{
		`{"message":"HIDDEN","requestedSchema":{"type":"object","properties":{}}}`,
		ofFields(`"a":{"type":"string","title":"HIDDEN"}`),
		ofFields(`"a":{"type":"number","description":"HIDDEN"}`),
		ofFields(`"a":{"type":"string","enum":["x"],"enumNames":["HIDDEN"]}`),
		ofFields(`"a":{"type":"string","oneOf":[{"const":"x","title":"HIDDEN"}]}`),
		ofFields(`"a":{"type":"array","items":{"anyOf":[{"const":"x","title":"HIDDEN"}]}}`),
		`{"mode":"url","message":"HIDDEN","url":"https://pay.example/x"}`,
	} {
		got, why := shown(t, strings.ReplaceAll(params, "HIDDEN", hidden))
		if why != "" || strings.Contains(got, "\u202e") || strings.Contains(got, `"\u202e`) || !strings.Contains(got, `\\u202e`) {
			t.Errorf("%s: %s, %s", params, got, why)
		}
	}
	for _, name := range []string{"\u202eabc", "a\u200bb", "a\u00a0b", "\u3164", "a\nb", " a", "a ", "", "a\U000e0041", "e" + strings.Repeat("\u0301", 5)} {
		quoted := string(rpc.String(name))
		if got, why := shown(t, ofFields(quoted+`:{"type":"string"}`)); why != unseen {
			t.Errorf("the name %s is shown: %s %s", quoted, got, why)
		}
		for _, field := range []string{`{"type":"string","enum":["x",NAME]}`, `{"type":"string","oneOf":[{"const":NAME,"title":"x"}]}`, `{"type":"array","items":{"type":"string","enum":[NAME]}}`} {
			if got, why := shown(t, ofFields(`"a":`+strings.Replace(field, "NAME", quoted, 1))); why != unseen {
				t.Errorf("the choice %s is shown: %s %s", quoted, got, why)
			}
		}
	}
}

// TestMessageOfAServerIsQuoted: the gateway's tag begins it, and no line of it is like one of the gateway's.
func TestMessageOfAServerIsQuoted(t *testing.T) {
	for message, want := range map[string]string{
		`two\nlines`:                               `[files asks] two\n> lines`,
		`a\r\n\n[other asks] b`:                    `[files asks] a\\u000d\n> \n> [other asks] b`,
		`a\u2028Careful: b\u0085c`:                 `[files asks] a\\u2028Careful: b\\u0085c`,
		`Pin this issue?`:                          `Do not enter passwords or codes here\n[files asks] Pin this issue?`,
		`Your p\u0430ssw\u043erd\nplease`:          `Do not enter passwords or codes here\n[files asks; careful: \"p\\u0430ssw\\u043erd\" mixes Cyrillic with Latin letters] Your pаsswоrd\n> please`,
		`a\tb\n\tc`:                                `[files asks] a b\n>  c`,
		`Shipping opinions`:                        `[files asks] Shipping opinions`,
		`Do not enter passwords or codes here\nOK`: `Do not enter passwords or codes here\n[files asks] Do not enter passwords or codes here\n> OK`,
		`Wie heißt der Zweig – und wohin?`:         `[files asks] Wie heißt der Zweig – und wohin?`,
		`log in at https://github.com\u2215acme with the name that you have there`: `[files asks; careful: \\u2215 looks like /] log in at https://github.com∕acme with the name that you have there`,
	} {
		got, why := shown(t, `{"message":"`+message+`","requestedSchema":{"type":"object","properties":{}}}`)
		if want := `{"message":"` + want + `","requestedSchema":{"type":"object","properties":{}}}`; got != want {
			t.Errorf("%s is\n%s %s, not\n%s", message, got, why, want)
		}
	}
	if got, _ := shown(t, ofFields(`"a":{"type":"string","title":"\u0441\u043e\u0440\u0443"}`)); !strings.Contains(got, `[files asks; careful: \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"] m`) {
		t.Errorf("a title: %s", got)
	}
}

// TestNoFieldReadsAsTheGateway: a text of a field that begins as the gateway's messages do is quoted, and what comes back in the answer
// does not begin so.
func TestNoFieldReadsAsTheGateway(t *testing.T) {
	for _, text := range []string{"[gateway asks] Approve", "[files asks; careful: nothing] x", " [policy ASKS] x", "“[rec asks] x", "［rec asks］ x", "[rec аsks] x", "> [rec asks] x"} {
		quoted := string(rpc.String(text))
		for _, field := range []string{`{"type":"string","title":TEXT}`, `{"type":"number","description":TEXT}`, `{"type":"string","enum":["x"],"enumNames":[TEXT]}`, `{"type":"string","oneOf":[{"const":"x","title":TEXT}]}`} {
			if got, why := shown(t, ofFields(`"a":`+strings.Replace(field, "TEXT", quoted, 1))); !strings.Contains(got, `"> `+strings.Trim(quoted, `"`)) {
				t.Errorf("%s of %q is shown as %s %s", field, text, got, why)
			}
		}
		text = strings.TrimSpace(text)
		quoted = string(rpc.String(text))
		if got, why := shown(t, ofFields(`"a":{"type":"string","default":`+quoted+`}`)); !strings.Contains(got, `{"a":{"type":"string"}}`) {
			t.Errorf("a field begins with %q: %s %s", text, got, why)
		}
		for _, field := range []string{`TEXT:{"type":"string"}`, `"a":{"type":"string","enum":["x",TEXT]}`, `"a":{"type":"array","items":{"anyOf":[{"const":TEXT,"title":"x"}]}}`} {
			if got, why := shown(t, ofFields(strings.Replace(field, "TEXT", quoted, 1))); why != likeOurs {
				t.Errorf("%s of %q is shown as %s %s", field, text, got, why)
			}
		}
	}
	for _, text := range []string{"[optional] Branch", "Who asks?", "[x] tasks", "a [who asks]"} {
		if got, why := shown(t, ofFields(string(rpc.String(text))+`:{"type":"string","title":`+string(rpc.String(text))+`}`)); !strings.Contains(got, `"title":`+string(rpc.String(text))) {
			t.Errorf("%q: %s %s", text, got, why)
		}
	}
}

// TestPageHasAVisibleAddress: of a host that the operator names.
func TestPageHasAVisibleAddress(t *testing.T) {
	page := func(address string) string {
		return `{"mode":"url","message":"m","url":` + string(rpc.String(address)) + `,"requestedSchema":{"type":"object"},"title":"t"}`
	}
	long := "https://pay.example/" + strings.Repeat("x", mostAddress-len("https://pay.example/"))
	for address, want := range map[string]string{
		"https://pay.example/x?a=%20b#c": "[files asks] m", long: "[files asks] m",
		"https://pay.example/%E2%80%AEgnp.exe":            "[files asks; careful: 1 character that cannot be seen: RIGHT-TO-LEFT OVERRIDE] m",
		"https://pay.example/?to=github.com%E2%88%95acme": `[files asks; careful: \u2215 looks like /] m`,
	} {
		got, why := shown(t, page(address))
		if want := `{"mode":"url","message":` + string(rpc.String(want)) + `,"url":` + string(rpc.String(address)) + `}`; got != want {
			t.Errorf("%s is %s %s, not %s", address, got, why, want)
		}
	}
	for _, address := range []string{
		"https://pay.example/\u202egnp.exe", "https://pay.example/a b", "https://pay.example/ü", "https://pay.example/\n", "https://pay.example/\t", long + "x", "",
		"http://pay.example/", "https://me@pay.example/", "https://evil.example/", "https://pay.example.evil/", "https://pay.example:444/", `https:\\\\pay.example/`, "https:/pay.example", "https://p\u0430y.example/",
	} {
		if got, why := shown(t, page(address)); why == "" {
			t.Errorf("%q is shown: %s", address, got)
		}
	}
}

// TestNoFormAsksForASecret: whatever a field is called, and wherever it says so.
func TestNoFormAsksForASecret(t *testing.T) {
	secrets := []string{
		"password", "p.a.s.s_w-o r/d", "ｐａｓｓｗｏｒｄ", "PASSWORD", "𝐩𝐚𝐬𝐬𝐰𝐨𝐫𝐝", "api_key_2", "Your pass\u00adword", "p\u0430ssw\u043erd", "раsswоrd", "pa55w0rd", "P@$$word", "pässwörd", "pass1word",
		"Paste the access-token here", "ｓｅｃｒｅｔ", "c r e d e n t i a l", "Passwort", "contraseña", "пароль", "密码", "パスワード",
		"pin", "PIN", "pins", "userPin", "USER_PIN", "PINCode", "pin2", "p.i.n", "P I N", "p1n", "p!n", "рin", "p\u200bi\u200bn", "Enter the PIN!", "pwd", "OTP", "0tp", "o-t-p code", "2FA", "2fa code",
		"CVC", "cvc2", "CVV", "SSN", "s.s.n.", "seed", "Seed phrase", "recovery code", "accountRecovery", "passcode", "pass phrase", "one-time code", "Verification code", "security  code", "Card number",
		"C.V.V.", "C V V", "C-V-V", "cv-v", "Your CVV2", "OTPcode", "userPINcode", "PINnumber", "myPINs", "PINfield", "PIN™", "Your PIN™", "PINº", "PINⁿ", "PIN№", "P⃣IN", "PI⃝N", "Pass⃠word",
		"pass|word", "pass!word", "pass@word", "to-ken", "P1N1", "P1N2", "p1n2", "pa55-w0rd", "secre7", "🅿🅸🅽", "🇵🇮🇳", "ØTP", "øtp", "PłN", "passwөrd", "paßwort", "mots de passe", "PI-N", "2-FA", "P.l.N", "P|N", "PlN",
		"userpin", "otpcode", "yourpins", "CREDENTIAL", "credentlal", "SOCIAL SECURITY", "t-0-k-e-n", "t o k e n", "passvvord", "rnnemonic", "API key", "pass 9 word",
	}
	for _, secret := range secrets {
		text := string(rpc.String(secret))
		for _, field := range []string{
			`TEXT:{"type":"string"}`, `"a":{"type":"string","title":TEXT}`, `"a":{"type":"string"},"b":{"type":"number","description":TEXT}`, `"a":{"type":"string","default":TEXT}`,
			`"a":{"type":"string","enum":["x",TEXT]}`, `"a":{"type":"string","enum":["x"],"enumNames":[TEXT]}`, `"a":{"type":"string","oneOf":[{"const":TEXT,"title":"x"}]}`,
			`"a":{"type":"string","oneOf":[{"const":"x","title":TEXT}]}`, `"a":{"type":"array","items":{"type":"string","enum":[TEXT]}}`, `"a":{"type":"array","items":{"anyOf":[{"const":"x","title":TEXT}]}}`,
		} {
			if got, why := shown(t, ofFields(strings.Replace(field, "TEXT", text, 1))); why != noSecret {
				t.Errorf("%s of %q is shown as %s %s", field, secret, got, why)
			}
		}
		if got, why := shown(t, `{"message":`+text+`,"requestedSchema":{"type":"object","properties":{"a":{"type":"boolean","title":"Pinned"}}}}`); !strings.HasPrefix(got, `{"message":"Do not enter passwords or codes here\n[files asks`) {
			t.Errorf("the message %q is shown as %s %s", secret, got, why)
		}
	}
	for _, text := range []string{
		"Shipping address", "opinion", "Pinned", "spin", "compass", "Postal code", "Code review", "Which passengers?", "email", "seeded", "speed", "Pile", "stop", "topic", "Branch name", "Größe", "日本語", "Число", "class nr. 5", "userName", "A/B test",
		"spinning", "opinion", "shipping", "Pinterest", "Topic words", "Doc width", "basic wage", "PLN", "Assign to Ken", "Assign to Ken's team", "Fly into Kenya", "Shown on the public website", "option", "adoption",
		"passenger", "seedling", "hotpot", "compass keyboard", "Step 1 of 2", "5 °C", "Acme™", "3º", "बिंदु",
	} {
		if got, why := shown(t, ofFields(string(rpc.String(text))+`:{"type":"string","title":`+string(rpc.String(text))+`}`)); why != "" || strings.Contains(got, noSecrets) {
			t.Errorf("%q is refused, or has the gateway's line: %s %s", text, got, why)
		}
	}
}

// TestAFormBeginsWithAChoice: a preset of which no choice tells a person is left out, wherever else the field has it.
func TestAFormBeginsWithAChoice(t *testing.T) {
	for _, field := range []string{
		`{"type":"string","enum":["x","y"]DEFAULT}`, `{"type":"string","oneOf":[{"const":"x","title":"z"},{"const":"y","title":"Y"}]DEFAULT}`,
		`{"type":"string","enum":["z"],"items":{"enum":["z"]},"oneOf":[{"const":"x"}]DEFAULT}`, `{"type":"string","enum":["x"],"items":{}DEFAULT}`,
		`{"type":"array","items":{"type":"string","enum":["x","y"]}DEFAULT}`, `{"type":"array","enum":["z"],"items":{"enum":["z"],"anyOf":[{"const":"x","title":"z"}]}DEFAULT}`,
	} {
		quote := func(text string) string {
			if strings.HasPrefix(field, `{"type":"array"`) {
				return `["` + text + `"]`
			}
			return `"` + text + `"`
		}
		for text, stays := range map[string]bool{"x": true, "z": false} {
			preset := `,"default":` + quote(text)
			got, why := shown(t, ofFields(`"a":`+strings.Replace(field, "DEFAULT", preset, 1)))
			if why != "" || strings.Contains(got, preset) != stays {
				t.Errorf("%s with %s: %s %s", field, preset, got, why)
			}
		}
	}
	for _, field := range []string{`{"type":"array","items":{"enum":["x","y"]},"default":["x","z"]}`, `{"type":"string","enum":[],"default":"z"}`} {
		if got, why := shown(t, ofFields(`"a":`+field)); why != "" || strings.Contains(got, "default") {
			t.Errorf("%s %s", got, why)
		}
	}
}

// TestLongFormsCostLittle: what is sought in them costs room in proportion to a text, whose length has a bound.
func TestLongFormsCostLittle(t *testing.T) {
	bytesOf := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, unit := range []string{"a ", "9 ", "p.", "pi n ", "ø", "P1", "c v ", "userOld ", "vv"} {
		text := strings.Repeat(unit, mostSearched/4/len(unit))
		asksForSecret(text) // once, for the tables
		one, four := bytesOf(func() { asksForSecret(text) }), bytesOf(func() { asksForSecret(strings.Repeat(text, 4)) })
		if four > 6*one {
			t.Errorf("%q: %d bytes for a text, and %d for one of four times the length", unit, one, four)
		}
	}
	message := func(length int) (got, why string) {
		return shown(t, `{"message":"`+strings.Repeat("a ", length/2)+`","requestedSchema":{}}`)
	}
	if got, why := message(mostSearched); why != "" || strings.Contains(got, noSecrets) {
		t.Errorf("a message that is searched: %.90s %s", got, why)
	}
	for _, length := range []int{mostSearched + 2, 4 << 20} {
		if got, why := message(length); !strings.HasPrefix(got, `{"message":"`+noSecrets+`\n[files asks] a a`) {
			t.Errorf("a message of %d bytes: %.90s %s", length, got, why)
		}
	}
	for length, want := range map[int]string{mostForm / 2: "", mostForm: tooLarge, 4 << 20: tooLarge} {
		if got, why := shown(t, ofFields(`"a":{"type":"string","title":"`+strings.Repeat("a ", length/2)+`"}`)); why != want {
			t.Errorf("a form of %d bytes: %.90s %s", length, got, why)
		}
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
