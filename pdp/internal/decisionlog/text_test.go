package decisionlog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

func textLine(request, details string) string {
	return `{"sequence":5,"id":"id-of-5","time":"2026-11-20T11:00:00.500000000Z","tenant":"acme","kind":"decision","request":` + request +
		`,"masked":[{"at":"/context/pin","type":"string"}],"decision":true,"bundle":"h1:bundled","event":"e","details":` + details + `,"salt":"salted"}`
}

// What people and programs wrote is found, and nothing else of a record is.
func TestText(t *testing.T) {
	t.Parallel()
	masked := mask.Prefix + strings.Repeat("A", 21) + "Q"
	line := textLine(`{"subject":{"type":"user","id":"\u0061lice \"the\" Büro"},"action":{"name":"read"},"context":{"arguments":{"Launch \u00e9":["q3 LAUNCH",{"deep":"\ud83d\ude00 \\ \/ end"}]},"n":4200,"token":"-H `+
		masked+` tail","salt":"own-salt"}}`, `{"by":"User::\"mia\"","reason":"fine\nby me","seal":"sealed","filed_at":"2026-11-20T11:00:00Z"}`)
	for word, want := range map[string]bool{
		"q3 launch": true, "Q3 LAUNCH": true, "ALICE": true, `"THE" büro`: true, "BÜRO": true, "launch É": true, "😀 \\ / END": true, "deep": true,
		"id-of-5": true, "ACME": true, "key": false, `user::"MIA"`: true, "FINE\nby": true, "decision": true, "salt": true, "own-SALT": true,
		"\u212Aey": false, "a\u017Furts": false, "alice  ": false, "-h ": true, " tail": true,
		// No syntax, no names of the format, and nothing that nobody wrote to be read.
		`":"`: false, "},{": false, "true": false, "4200": false, "reason": false, "filed_at": false, "request": false,
		"salted": false, "sealed": false, "bundled": false, "2026": false, "pin": false, "string": false,
		// Neither masks nor what is around them.
		"masked": false, "AAAA": false, "-h mask": false, "-h  tail": false, "q tail": false,
		`\u0061`: false, "u0061": false, `\n`: false,
	} {
		got, err := record.Filter{Text: word}.Matches([]byte(line))
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
	for _, sensitive := range []string{"\u212A", "ss\u017F"} { // the Kelvin sign, and the long s
		if got, err := (record.Filter{Text: "x" + strings.ToLower(sensitive)}).Matches([]byte(textLine(`{"context":{"a":"X`+sensitive+`"}}`, `{}`))); err != nil || !got {
			t.Errorf("%q: %v, %v", sensitive, got, err)
		}
	}
	if got, err := (record.Filter{Text: "launch", Tenants: []string{"globex"}}).Matches([]byte(line)); err != nil || got {
		t.Errorf("another tenant's: %v, %v", got, err)
	}
	if got, err := (record.Filter{Text: "launch", Tenants: []string{"acme"}, Subject: "nobody"}).Matches([]byte(line)); err != nil || got {
		t.Errorf("another filter, too: %v, %v", got, err)
	}
	if _, err := (record.Filter{Text: "launch"}).Matches([]byte(line[:len(line)-9])); err == nil {
		t.Error("half a line was passed over")
	}
}

func TestTextIsChecked(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"": true, "a": false, "ü": false, "ab": true, "üü": true, "a\xff": false, strings.Repeat("ü", 256): true, strings.Repeat("a", 257): false} {
		if err := (record.Filter{Text: text}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	now, day := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC), 24*time.Hour
	for _, c := range []struct {
		f    record.Filter
		from time.Time
	}{
		{record.Filter{Text: "ab"}, now.Add(-90 * day)},
		{record.Filter{Text: "ab", To: now.Add(day)}, now.Add(-90 * day)},
		{record.Filter{Text: "ab", To: now.Add(-200 * day)}, now.Add(-290 * day)},
		{record.Filter{Text: "ab", From: now.Add(-400 * day)}, now.Add(-400 * day)},
		{record.Filter{Subject: "ab"}, time.Time{}},
	} {
		if got, set := c.f.Bounded(now); !got.From.Equal(c.from) || set != (c.f.From.IsZero() && c.f.Text != "") || got.Check() != nil {
			t.Errorf("%+v: %+v, %v", c.f, got, set)
		}
	}
}

// maskedText is what stands in the place of a masked value.
var maskedText = regexp.MustCompile(regexp.QuoteMeta(mask.Prefix) + `[\w-]{22}`)

// notSearched are the members of a record in which no text is found.
var notSearched = []string{"time", "now", "masked", "rest", "bundle", "salt", "seal", "filed_at", "expires_at", "proof"}

// hasSlowly is the definition, by the means of the standard library.
func hasSlowly(v any, word string, own, found bool) bool {
	within := func(text string) bool {
		n := utf8.RuneCountInString(word)
		for all := []rune(text); len(all) >= n; all = all[1:] {
			if strings.EqualFold(string(all[:n]), word) {
				return true
			}
		}
		return false
	}
	switch v := v.(type) {
	case string:
		return found || slices.ContainsFunc(maskedText.Split(v, -1), within)
	case []any:
		for _, one := range v {
			found = found || hasSlowly(one, word, own, false)
		}
	case map[string]any:
		for name, one := range v {
			switch {
			case own:
				found = found || hasSlowly(name, word, own, false) || hasSlowly(one, word, own, false)
			case !slices.Contains(notSearched, name):
				found = found || hasSlowly(one, word, name == "context" || name == "properties", false)
			}
		}
	}
	return found
}

func sameAsSlowly(t *testing.T, line, word string) {
	t.Helper()
	var whole map[string]any
	got, err := record.Filter{Text: word}.Matches([]byte(line))
	if err != nil || json.Unmarshal([]byte(line), &whole) != nil || (record.Filter{Text: word}).Check() != nil {
		return
	}
	if want := hasSlowly(whole, word, false, false); got != want {
		t.Fatalf("%q in %s: %v, want %v", word, line, got, want)
	}
}

// TestTextIsItsDefinition: a part of a string in a record is found, in whichever way it is escaped, and what is no part of one is not.
func TestTextIsItsDefinition(t *testing.T) {
	t.Parallel()
	r, found := rand.New(rand.NewPCG(rand.Uint64(), 0)), 0
	for range night.Cases(3_000) {
		text := []rune(valid(r) + valid(r))
		context := `{"m":[` + escaped(r, string(text)) + `],` + escaped(r, "n"+valid(r)) + `:{"properties":` + escaped(r, valid(r)) + `}}`
		line := textLine(`{"subject":{"type":"user","id":`+escaped(r, valid(r))+`},"context":`+context+`}`, `{"seal":`+escaped(r, valid(r))+`,"by":`+escaped(r, valid(r))+`}`)
		word := valid(r)
		if len(text) > 2 && r.IntN(2) == 0 {
			from := r.IntN(len(text) - 1)
			word = string(text[from : from+2+r.IntN(len(text)-from-1)])
		}
		if r.IntN(2) == 0 {
			word = strings.ToUpper(word)
		}
		sameAsSlowly(t, line, word)
		if got, _ := (record.Filter{Text: word}).Matches([]byte(line)); got {
			found++
		}
	}
	if found == 0 {
		t.Error("nothing was ever found")
	}
}

// escaped quotes a text with more escapes than it needs.
func escaped(r *rand.Rand, text string) string {
	out := []byte{'"'}
	for _, c := range text {
		switch {
		case r.IntN(3) == 0 && c < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, c)
		case c == '/' && r.IntN(2) == 0:
			out = append(out, `\/`...)
		default:
			quoted, _ := jsontext.AppendQuote(nil, string(c))
			out = append(out, quoted[1:len(quoted)-1]...)
		}
	}
	return string(append(out, '"'))
}

func FuzzText(f *testing.F) {
	f.Add(`{"subject":{"id":"\u0061b"},"context":{"x":"\ud83d\ude00Ǆ\u01c6"}}`, "AB")
	f.Add(`{"context":{"masked:AAAAAAAAAAAAAAAAAAAAAA":"masked:masked:AAAAAAAAAAAAAAAAAAAAAAx"}}`, "masked:")
	f.Fuzz(func(t *testing.T, request, word string) { sameAsSlowly(t, textLine(request, `{}`), word) })
}

// What items inherit is found in each that inherits it, by pages and by a sieve alike, and no longer once it is redacted.
func TestTextOfBatches(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	k, _ := batchLog(t, r)
	words := []string{"BLUE", "team", "purpose", "supported_obligations"}
	for segment := range 3 {
		words = append(words, fmt.Sprintf("Secret-of-b%d-%d", segment, r.IntN(12)))
	}
	found := 0
	for _, word := range words {
		var want []string
		for n, line := range k.lines {
			if k.gone[int64(n)] != "" {
				continue
			}
			s, err := k.log.Recorded(line)
			k.ok(err)
			var stored, asked any
			k.ok(json.Unmarshal(line, &stored))
			if s.Asked != nil {
				k.ok(json.Unmarshal(s.Asked, &asked))
			}
			if hasSlowly(stored, word, false, false) || hasSlowly(asked, word, false, false) {
				want = append(want, s.ID)
			}
		}
		var got []string
		for _, line := range pagesOf(t, k.log, Query{Filter: record.Filter{Text: word}, Limit: 7}) {
			got = append(got, idOf(line))
		}
		if found += len(got); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
	if found == 0 {
		t.Error("nothing was found")
	}
}

// Items that inherit different members in turn have the record of their batch read once for each of these.
func TestInheritedTextIsReadOnce(t *testing.T) {
	t.Parallel()
	k, _ := batchLog(t, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	reads, about := 0, map[string]bool{}
	s := record.NewSieve(record.Filter{Text: "nowhere to be found"}, func(line []byte) (record.Recorded, error) {
		reads++
		return k.log.Recorded(line)
	})
	for range 2 {
		for n, line := range k.lines {
			r, err := record.Parse(line)
			k.ok(err)
			if k.gone[int64(n)] != "" || r.BatchID() == "" {
				continue
			}
			key := fmt.Sprint(r.Tenant, r.BatchID(), r.Inherits)
			if !about[key] && len(about) == 60 { // it keeps some more
				continue
			}
			about[key] = true
			if has, err := s.Passes(line); has || err != nil || reads != len(about) {
				t.Fatalf("record %d: %t, %v; of %d batches' parts it read %d", n, has, err, len(about), reads)
			}
		}
		if len(about) < 3 {
			t.Fatalf("%d parts", len(about))
		}
	}
}
