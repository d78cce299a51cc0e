package mask_test

import (
	"bytes"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/mask"
)

var key = bytes.Repeat([]byte{7}, mask.KeySize)

func masker(t testing.TB, patterns ...string) *mask.Masker {
	t.Helper()
	m, err := mask.New(key, patterns)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func request(t testing.TB, context string) evaluation.Request {
	t.Helper()
	r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"alice","properties":{"note":"s3cr3t-hunter2!"}},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":`+context+`}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// context is the masked context as JSON, each digest as its letter in order of appearance.
func context(t testing.TB, m *mask.Masker, text string) string {
	t.Helper()
	b, err := m.Apply(request(t, text)).Request.Context.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return letters(string(b))
}

// TestPeopleAreToldWhatIsHidden: how long it is, and what is in an object that is secret by its name. Records say neither.
func TestPeopleAreToldWhatIsHidden(t *testing.T) {
	t.Parallel()
	m := masker(t, "/context/arguments/whole")
	for name, test := range map[string]struct{ in, people, record string }{
		"a text":             {`{"password":"hunter22é"}`, `{"password":"hidden: 10 bytes (<A>)"}`, `{"password":"<A>"}`},
		"nothing":            {`{"region":"x"}`, `{"region":"x"}`, `{"region":"x"}`},
		"other values":       {`{"token":[1,true,null,"",{}]}`, `{"token":["hidden: number (<A>)","hidden: bool (<B>)",null,"hidden: 0 bytes (<C>)",{}]}`, `{"token":"<A>"}`},
		"an object by name":  {`{"secretConfig":{"region":"eu-central","keys":[{"key":"k"}]}}`, `{"secretConfig":{"keys":[{"key":"hidden: 1 bytes (<A>)"}],"region":"hidden: 10 bytes (<B>)"}}`, `{"secretConfig":"<A>"}`},
		"a secret as a name": {`{"token":{"a":"hunter22","hunter22":1}}`, `{"token":{"a":"hidden: 8 bytes (<A>)","<A>":"hidden: number (<B>)"}}`, `{"token":"<A>"}`},
		"by a pattern":       {`{"arguments":{"whole":{"region":"eu-central"}}}`, `{"arguments":{"whole":"hidden: object (<A>)"}}`, `{"arguments":{"whole":"<A>"}}`},
		"in JSON in a text":  {`{"x":"{\"token\":{\"a\":\"hunter22\"}}"}`, `{"x":"{\"token\":{\"a\":\"hidden: 8 bytes (<A>)\"}}"}`, `{"x":"{\"token\":\"<A>\"}"}`},
		"elsewhere":          {`{"token":"hunter22","note":"use hunter22"}`, `{"note":"use <A>","token":"hidden: 8 bytes (<A>)"}`, `{"note":"use <A>","token":"<A>"}`},
		"words of ours":      {`{"token":["hidden: 8 bytes","abcdefgh"]}`, `{"token":["hidden: 15 bytes (<A>)","<B>"]}`, `{"token":"<A>"}`},
	} {
		k := m.Apply(request(t, test.in))
		for want, k := range map[string]*mask.Masking{test.people: k.ForPeople(request(t, test.in)), test.record: k} {
			if got, err := k.Request.Context.MarshalJSON(); err != nil || letters(string(got)) != want {
				t.Errorf("%s: got %s, want %s", name, letters(string(got)), want)
			}
		}
	}
}

func letters(text string) string {
	const length = len(mask.Prefix) + 22
	seen := map[string]string{}
	for {
		before, rest, ok := strings.Cut(text, mask.Prefix)
		if !ok {
			return text
		}
		digest := rest[:length-len(mask.Prefix)]
		if seen[digest] == "" {
			seen[digest] = string(rune('A' + len(seen)))
		}
		text = before + "<" + seen[digest] + ">" + rest[len(digest):]
	}
}

func TestMasked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, patterns, in, want string }{
		{"by name, in any case", "", `{"Password":"x","API-Key":"y","apiKey":"y","n":"x"}`, `{"API-Key":"<A>","Password":"<B>","apiKey":"<A>","n":"x"}`},
		{"as a part of a name", "", `{"db_password_2":"x"}`, `{"db_password_2":"<A>"}`},
		{"letters that fold to ASCII", "", `{"pa\u017f\u017fword":"x","to\u212Aen":"x"}`, "{\"pa\u017f\u017fword\":\"<A>\",\"to\u212Aen\":\"<A>\"}"},
		{"numbers, booleans, null", "", `{"token":7,"token2":7.0,"token3":true,"token4":null,"token5":"7"}`, `{"token":"<A>","token2":"<A>","token3":"<B>","token5":"<C>"}`},
		{"numbers beyond an integer", "", `{"token":0.1,"token2":1e-1,"token3":-10e-2,"token4":1e99999999999}`, `{"token":"<A>","token2":"<A>","token3":"<B>","token4":"<C>"}`},
		{"an object and an array as a whole", "", `{"cookies":{"a":[1]},"secrets":["x"],"secrets2":["x"]}`, `{"cookies":"<A>","secrets":"<B>","secrets2":"<B>"}`},
		{"inside others", "", `{"a":[{"b":{"token":"x"}}]}`, `{"a":[{"b":{"token":"<A>"}}]}`},
		{"by pointer", "/context/arguments/*/pin", `{"arguments":{"card":{"pin":1,"n":1},"pin":2}}`, `{"arguments":{"card":{"n":1,"pin":"<A>"},"pin":2}}`},
		{"an element by pointer", "/context/list/1", `{"list":["a","b","c"]}`, `{"list":["a","<A>","c"]}`},
		{"every member", "/context/*", `{"a":1,"b":{"c":2}}`, `{"a":"<A>","b":"<B>"}`},
		{"a pointer with escapes", "/context/a~1b~0/x", `{"a/b~":{"x":"v"}}`, `{"a/b~":{"x":"<A>"}}`},
		{"eight bytes wherever they are", "", `{"token":"hunter22","text":"it is hunter22.","list":["hunter22"],"short":"hunter2"}`, `{"list":["<A>"],"short":"hunter2","text":"it is <A>.","token":"<A>"}`},
		{"seven bytes only where they are", "", `{"token":"hunter2","text":"hunter2"}`, `{"text":"hunter2","token":"<A>"}`},
		{"in a name", "", `{"token":"hunter22","of hunter22":1}`, `{"of <A>":1,"token":"<A>"}`},
		{"what is in a value masked whole", "", `{"secrets":{"a":["hunter22"]},"text":"hunter22"}`, `{"secrets":"<A>","text":"<B>"}`},
		{"digits in a text and elsewhere", "", `{"token":12345678,"text":"no 12345678","n":12345678,"m":1.2345678e7,"k":1234}`, `{"k":1234,"m":"<A>","n":"<A>","text":"no <B>","token":"<A>"}`},
		{"overlapping", "", `{"token":"aaaabbbb","token2":"bbbbcccc","text":"aaaabbbbcccc"}`, `{"text":"<A>","token":"<B>","token2":"<C>"}`},
		{"one in the other", "", `{"token":"aaaabbbb","token2":"xaaaabbbby","text":"xaaaabbbbz"}`, `{"text":"x<A>z","token":"<A>","token2":"<B>"}`},
		{"one beside the other", "", `{"token":"aaaabbbb","text":"aaaabbbbaaaabbbb"}`, `{"text":"<A><A>","token":"<A>"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := context(t, masker(t, strings.Fields(test.patterns)...), test.in); renamed(got) != renamed(test.want) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// renamed gives the letters anew in the order they appear: a want says what is equal.
func renamed(text string) string {
	names := map[byte]byte{}
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '<' && b[i+2] == '>' {
			if names[b[i+1]] == 0 {
				names[b[i+1]] = byte('a' + len(names))
			}
			b[i+1] = names[b[i+1]]
		}
	}
	return string(b)
}

func TestWhoAndWhatStay(t *testing.T) {
	t.Parallel()
	r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"hunter22","id":"hunter22"},"action":{"name":"hunter22","properties":{"token":"hunter22"}},"resource":{"type":"hunter22","id":"hunter22"}}`), "hunter22", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	got := masker(t, "/*/*/*").Apply(r).Request
	if b, _ := got.MarshalJSON(); strings.Count(string(b), "hunter22") != 5 || got.Tenant != "hunter22" {
		t.Errorf("ids, types, names and the tenant should stay, the property not: %s", b)
	}
}

func TestTextsAndObligations(t *testing.T) {
	t.Parallel()
	owed, err := evaluation.NewObject(map[string]any{"body": "pin s3cr3t-hunter2!", "api_key": "static-and-long"})
	if err != nil {
		t.Fatal(err)
	}
	k := masker(t, "/subject/properties/note").Apply(request(t, `{"a":"static-and-long"}`), owed)
	b, _ := k.Object(owed).MarshalJSON()
	r, _ := k.Request.MarshalJSON()
	text := k.Text("you sent s3cr3t-hunter2! and static-and-long")
	for _, got := range []string{string(b), string(r), text} {
		if strings.Contains(got, "hunter2") || strings.Contains(got, "static") {
			t.Errorf("a secret is left in %s", got)
		}
	}
	if want := "you sent <A> and <B>"; letters(text) != want {
		t.Errorf("got %q, want %q", letters(text), want)
	}
}

func TestDigestsHoldForOneKey(t *testing.T) {
	t.Parallel()
	a, b := masker(t), masker(t)
	other, err := mask.New(bytes.Repeat([]byte{8}, mask.KeySize), nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(m *mask.Masker) string {
		v, _ := m.Apply(request(t, `{"token":"x"}`)).Request.Context.Get("token")
		return v.Text()
	}
	if of(a) != of(b) || of(a) == of(other) {
		t.Errorf("%s, %s and with another key %s", of(a), of(b), of(other))
	}
}

func TestPatternsThatMaskNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "context/a", "/", "/context", "/subject/id", "/subject/properties", "/action/name", "/tenant/x", "/*", "/*/type", "/context/~2", "/context/a~"} {
		if err := mask.Check([]string{p}); err == nil {
			t.Errorf("%q should be refused", p)
		}
	}
	for _, p := range []string{"/context/a", "/context/*", "/subject/properties/*", "/*/properties/ssn", "/resource/properties/labels/x"} {
		if err := mask.Check([]string{p}); err != nil {
			t.Error(err)
		}
	}
	if _, err := mask.New(key[:31], nil); err == nil {
		t.Error("a short key should be refused")
	}
}

// TestPointersTellNothing: a pointer says neither what is a secret elsewhere, however it is
// escaped, nor what is in a value that is masked whole.
func TestPointersTellNothing(t *testing.T) {
	t.Parallel()
	k := masker(t, "/context/card/*", "/subject/properties/deep").Apply(request(t, `{"token":["ab/cd~efgh"],"card":{"pin":{"a":{"b":1}}}}`))
	for _, c := range []struct{ pointer, place, want string }{
		{"/context/n/1", "/context/n/1", "/context/n/1"},
		{"", "", ""},
		{"/subject/type", "/subject/type", "/subject/type"},
		{"/context/ab~1cd~0efgh/x", "/context/ab~1cd~0efgh/x", "/context/<A>/x"},
		{"/evaluations/3/context/of ab~1cd~0efgh", "/context/of ab~1cd~0efgh", "/evaluations/3/context/of <A>"},
		{"/context/token/who/0", "/context/token/who/0", "/context/token"},
		{"/evaluations/3/context/a/My~1Password/who", "/context/a/My~1Password/who", "/evaluations/3/context/a/My~1Password"},
		{"/context/card/pin/a/b", "/context/card/pin/a/b", "/context/card/pin"},
		{"/actor/deep/a", "/subject/properties/deep/a", "/actor/deep"},
		{"/actor/deeper/a", "/subject/properties/deeper/a", "/actor/deeper/a"},
		{"/context/ab~1cd~0ef…", "/context/ab~1cd~0efgh", "/context/…"},
		{"/context…", "/context", "/…"},
		{"/evaluations/0/ab~1cd~0efgh", "", "/evaluations/0/<A>"},
	} {
		if got := letters(k.Pointer(c.pointer, c.place)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.pointer, got, c.want)
		}
	}
}

// TestNullIsRecordedAndItsNameIsNoSecret: below the arguments null is on record, and the names of such members are
// searched like those of others.
func TestNullIsRecordedAndItsNameIsNoSecret(t *testing.T) {
	t.Parallel()
	m := masker(t, "/context/arguments/pin", "/context/arguments/whole")
	for in, want := range map[string]string{
		`{"arguments":{"pin":null,"n":null}}`:                                 `{"arguments":{"n":null,"pin":null}}`,
		`{"arguments":{"is hunter-22":null,"token":"hunter-22"}}`:             `{"arguments":{"is <A>":null,"token":"<A>"}}`,
		`{"arguments":{"{\"password\":\"hunter-22\"}":null},"x":"hunter-22"}`: `{"arguments":{"{\"password\":\"<A>\"}":null},"x":"<A>"}`,
	} {
		if got := context(t, m, in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	digests := map[string]bool{}
	for _, whole := range []string{`{}`, `{"a":null}`, `{"b":null}`, `{"a":{"b":null}}`} {
		v, _ := m.Apply(request(t, `{"arguments":{"whole":`+whole+`}}`)).Request.Context.Get("arguments")
		digest, _ := v.Object().Get("whole")
		digests[digest.Text()] = true
	}
	if len(digests) != 4 {
		t.Errorf("what differs by null has one digest: %v", digests)
	}
}

// TestHides: what masks hide is known before there is a value.
func TestHides(t *testing.T) {
	t.Parallel()
	m := masker(t, "/context/arguments/*/iban", "/context/note", "/subject/properties/dept")
	for path, want := range map[string]bool{
		"arguments.refund.iban": true, "arguments.refund.iban.bank": true, "arguments.refund": false, "arguments.iban": false,
		"note": true, "note.text": true, "dept": false, "properties.dept": false, "arguments.api_key": true, "arguments.api_key.a": true, "amount": false,
	} {
		if got := m.Hides("context", strings.Split(path, ".")...); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if none := (*mask.Masker)(nil); none.Hides("context", "note") || !none.Hides("context", "password") {
		t.Error("without a masker, names alone tell")
	}
}
