package mask_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

// quoted is a text as a JSON string, so many times.
func quoted(text string, times int) string {
	for range times {
		var b strings.Builder
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(text)
		text = strings.TrimSuffix(b.String(), "\n")
	}
	return text
}

// However a name is spelt, the value of it is the same secret.
func TestNoSpellingOfANameHidesItsValue(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"api/key", "api key", "api\tkey", "api\nkey", "api\u200bkey", "api\u00a0key", "api\u2060key", "api\ufeffkey", "api\u00adkey", "api:key", "api--key",
		"API\\KEY", "a.p.i.k.e.y", " p a s s w o r d ", "pass\u200dword", "ｐａｓｓｗｏｒｄ", "ＡＰＩｋｅｙ", "private\u3000key", "my (token)", "pass\u0301word",
	} {
		if got, want := context(t, masker(t), `{`+quoted(name, 1)+`:"hunter22","plain":1}`), `:"<A>"`; !strings.Contains(got, want) {
			t.Errorf("%q: got %s", name, got)
		}
	}
}

// What a string holds as JSON is masked like what stands in the open, with one digest.
func TestNoSecretHidesInAString(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, patterns, text, want string }{
		{"an object", "", `{"password":"hunter22","n":1}`, `{"n":1,"password":"<A>"}`},
		{"an array of them", "", `[1,{"token":"hunter22"}]`, `[1,{"token":"<A>"}]`},
		{"with blanks around", "", " \n{\"token\" : \"hunter22\"} ", `{"token":"<A>"}`},
		{"a name with escapes", "", `{"pass\u0077ord":"hunter22"}`, `{"password":"<A>"}`},
		{"a name with a quote in it", "", `{"pass\"word":"hunter22"}`, `{"pass\"word":"<A>"}`},
		{"once more in a string", "", quoted(`{"password":"hunter22"}`, 1), quoted(`{"password":"<A>"}`, 1)},
		{"twice more in a string", "", quoted(`{"password":"hunter22"}`, 2), quoted(`{"password":"<A>"}`, 2)},
		{"in an argument of an argument", "", `{"args":` + quoted(`{"deep":[`+quoted(`{"token":"hunter22"}`, 1)+`]}`, 1) + `}`, `{"args":` + quoted(`{"deep":[`+quoted(`{"token":"<A>"}`, 1)+`]}`, 1) + `}`},
		{"by pointer", "/context/x/card/pin", `{"card":{"pin":"hunter22"}}`, `{"card":{"pin":"<A>"}}`},
		{"no secret", "", `{ "b":1, "a":"tokens" }`, `{ "b":1, "a":"tokens" }`},
		{"prose", "", `the token: is secret, "password" is too`, `the token: is secret, "password" is too`},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := `{"x":` + quoted(test.text, 1) + `,"token":"hunter22"}`
			want := `{"token":"<A>","x":` + quoted(test.want, 1) + `}`
			if got := context(t, masker(t, strings.Fields(test.patterns)...), body); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// What names a secret and cannot be read is no JSON to us, and may be to others.
func TestWhatCannotBeReadIsMaskedWhole(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 40) + `{"password":"hunter22"}` + strings.Repeat(`}`, 40)
	for name, text := range map[string]string{
		"cut off":                     `{"password":"hunter22`,
		"cut off, behind another":     `{"user":"alice","password": "hunter22`,
		"a name twice":                `{"password":"hunter22","password":"x"}`,
		"something behind it":         `{"password":"hunter22"} trailing`,
		"two values":                  `{"password":"hunter22"},"y":{}`,
		"in prose":                    `call it with {"password": "hunter22"}, please`,
		"in single quotes":            `{'password': 'hunter22'}`,
		"a comma too much":            `{"password":"hunter22",}`,
		"too deep":                    deep,
		"reserved":                    `{"password":"hunter22","__entity":1}`,
		"many blanks":                 `{"password"` + strings.Repeat(" ", 500) + `:"hunter22`,
		"an escaped name, cut off":    `{"pass\u0077ord":"hunter22`,
		"twice quoted, cut off":       `{"args":"{\"api_key\": \"hunter22`,
		"twice escaped, cut off":      `{\"pass\\u0077ord\":\"hunter22`,
		"in a string that is whole":   quoted(`{"password":"hunter22`, 1),
		"a lone surrogate":            `{"password":"hunter22 \ud800"}`,
		"quoted with other blanks in": "{\"api\tkey\":\"hunter22",
	} {
		for _, within := range []string{`{"x":%}`, `{"x":["a",%]}`, `{%:1}`} {
			if got := context(t, masker(t), strings.Replace(within, "%", quoted(text, 1), 1)); strings.Contains(got, "hunter") {
				t.Errorf("%s: got %s", name, got)
			}
		}
		if got := masker(t).Apply(request(t, `{}`)).Text(text); strings.Contains(got, "hunter") {
			t.Errorf("%s, as a text: got %s", name, got)
		}
	}
	if got := context(t, masker(t, "/context/x/card/pin"), `{"x":"{\"card\":{\"pin\":\"hunter22"}`); strings.Contains(got, "hunter") {
		t.Errorf("what a pattern addresses, cut off: got %s", got)
	}
}

// A pointer says where, and nothing that the record does not say besides.
func TestNoSegmentOfAPointerTellsASecret(t *testing.T) {
	t.Parallel()
	k := masker(t).Apply(request(t, `{"amount":1,"hunter22":{"a/b~c":1},"token":"hunter22","secrets":{"sk_live_1234":1},"x":[{"deep":1}]}`))
	for pointer, want := range map[string]string{
		"":                                     "",
		"/context/amount":                      "/context/amount",
		"/evaluations/12/subject/properties":   "/evaluations/12/subject/properties",
		"/context/hunter22/a~1b~0c":            "/context/<A>/a~1b~0c",
		"/context/x/0/deep/__entity":           "/context/x/0/deep/__entity",
		"/context/sk_live_SECRET/__entity":     "/context/<A>/__entity",
		"/context/secrets/sk_live_1234":        "/context/secrets/<A>",
		"/context/of hunter22/__extn":          "/context/<A>/__extn",
		"/context/123456":                      "/context/<A>",
		"/context/" + strings.Repeat("s", 900): "/context/<A>",
	} {
		if got := letters(k.Pointer(pointer, "")); got != want {
			t.Errorf("%s: got %s, want %s", pointer, got, want)
		}
	}
}

// A text of later holds nothing that is on record as a digest, whole or as a part.
func TestALaterTextRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	m := masker(t)
	long := "a passphrase of many words: " + strings.Repeat("correct horse, ", 12)
	line, err := m.Apply(request(t, `{"password":"hunter-0001=/zebra","token":"kingdom of keys","token2":"żółć-żółć","secret":`+quoted(long, 1)+`,"token3":"1234","note":"northern-lights"}`)).Request.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                    "",
		"short":                               "short",
		"hunter-0001=/zebra":                  "<A>",
		"xhunter-0001=/zebrax":                "x<A>x",
		"it said hunter-0001=/zebra, twice":   "it said <A>, twice",
		"the kingdom of keys and hunter-0001": "the <A> and hunter-0001",
		"kingdom of keyskingdom of keys":      "<A><A>",
		"on:żółć-żółć.":                       "on:<A>.",
		"why? " + long + "":                   "why? <A>",
		"northern-lights are no secret":       "northern-lights are no secret",
		"the pin is 1234":                     "the pin is 1234",
		`{"password": "never-heard-of"}`:      `{"password":"<A>"}`,
		`{"password": "never-heard-of`:        `<A>`,
	} {
		if got := letters(m.After(text, nil, []byte("{}"), line)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTheWorkForALaterTextIsBounded(t *testing.T) {
	night.Measures(t)
	m := masker(t)
	line, err := m.Apply(request(t, `{"token":"hunter22"}`)).Request.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strings.Repeat("a", 1024), strings.Repeat("a ", 512), strings.Repeat(" ", 1024)} {
		begun := time.Now()
		m.After(text, line)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("%.8q… took %v", text, took)
		} else {
			t.Logf("%.8q… took %v", text, took)
		}
	}
}
