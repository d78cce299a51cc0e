package visible_test

import (
	_ "embed"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/visible"
)

// ordinary are requests as people write them in Russian, Greek, French, German and Chinese.
//
//go:embed testdata/ordinary.txt
var ordinary string

// Alarm at what is ordinary teaches people to pass over it.
func TestOrdinaryRequestsHaveNoMark(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(ordinary), "\n")
	if len(lines) != 200 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		if got := drawn(line); got != line {
			t.Errorf("%s\n%s", line, got)
		}
		if notes := visible.Notes(line); len(notes) > 0 {
			t.Errorf("%s: %q", line, notes)
		}
		quoted, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		if notes := visible.NotesInJSON(quoted); len(notes) > 0 && !strings.ContainsAny(line, "“”") {
			t.Errorf("in JSON, %s: %q", line, notes)
		}
	}
}

// Nothing that looks like ASCII passes for it, where a person reads names, URLs and values.
func TestLookAlikesAreMarked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://github.com\u2215acme\u2215shop.evil.example": `https://github.com[\u2215|looks like /]acme[\u2215|looks like /]shop.evil.example` +
			"\n=> \\u2215 looks like /",
		"\u0441\u043e\u0440\u0443": `[\u0441|looks like c][\u043e|looks like o][\u0440|looks like p][\u0443|looks like y]` +
			"\n=> \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"",
		"ma\u0131n":                         `ma[\u0131|looks like i]n` + "\n=> \"ma\\u0131n\" looks like \"main\"",
		"1\u201a000":                        `1[\u201a|looks like ,]000` + "\n=> \\u201a looks like ,",
		strings.Repeat("x", 40) + "\u0131y": strings.Repeat("x", 40) + `[\u0131|looks like i]y` + "\n=> \"...xxxxxxxxxxxx\\u0131y\" looks like \"...xxxxxxxxxxxxiy\"",
		"\u0441\u043e\u0440\u0443 5\u00b5m": `[\u0441|looks like c][\u043e|looks like o][\u0440|looks like p][\u0443|looks like y] 5` + "\u00b5m\n=> \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"",
		"1\u24883":                          `1[\u2488|looks like 1.]3` + "\n=> \\u2488 looks like 1.",
		"pay 1\u00d710":                     "pay 1\u00d710", "10 \u00d7 15": "10 \u00d7 15",
		"rm \u2212rf":        `rm [\u2212|looks like -]rf` + "\n=> \\u2212 looks like -",
		"O\u2019Brien":       `O[\u2019|looks like ']Brien` + "\n=> \\u2019 looks like '",
		"\u0440\u0430\u0443": `[\u0440|looks like p][\u0430|looks like a][\u0443|looks like y]` + "\n=> \"\\u0440\\u0430\\u0443\" looks like \"pay\"",
		"https\uff1a//a":     `https[\uff1a|looks like :]//a` + "\n=> \\uff1a looks like :",
		"m\u0430\u0131n":     `m[\u0430|Cyrillic among Latin][\u0131|looks like i]n` + "\n=> \"m\\u0430\\u0131n\" mixes Cyrillic with Latin letters",
		"\uff4d\uff41\uff49\uff4e": `[\uff4d|looks like m][\uff41|looks like a][\uff49|looks like i][\uff4e|looks like n]` +
			"\n=> \"\\uff4d\\uff41\\uff49\\uff4e\" looks like \"main\"",
		"acme\u30ceshop": `acme[\u30ce|looks like /]shop` + "\n=> \"acme\\u30ceshop\" looks like \"acme/shop\"",
		"1\u0431000":     `1[\u0431|looks like 6]000` + "\n=> \"1\\u0431000\" looks like \"16000\"",
		// Among words of its own alphabet a word is what it is, but not in a path, nor between words of ours.
		"\u0431\u0435\u0437 \u0441\u043e\u0440\u0430":         "\u0431\u0435\u0437 \u0441\u043e\u0440\u0430",
		"\u0434\u0430: push \u0441\u043e\u0440\u0443 to main": "\u0434\u0430: push " + `[\u0441|looks like c][\u043e|looks like o][\u0440|looks like p][\u0443|looks like y] to main` + "\n=> \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"",
		"\u0434\u0430: acme/\u0441\u043e\u0440\u0443":         "\u0434\u0430: acme/" + `[\u0441|looks like c][\u043e|looks like o][\u0440|looks like p][\u0443|looks like y]` + "\n=> \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"",
		// A word of mixed letters does not make a text one of another alphabet.
		"w\u0436 \u0441\u043e\u0440\u0443": `w[\u0436|Cyrillic among Latin] [\u0441|looks like c][\u043e|looks like o][\u0440|looks like p][\u0443|looks like y]` +
			"\n=> \"w\\u0436\" mixes Cyrillic with Latin letters\n=> \"\\u0441\\u043e\\u0440\\u0443\" looks like \"copy\"",
		// What parts a URL is marked in a text that is read, and typography is not.
		"see https://github.com\u2215acme, it\u2019s one two three four \u201cfive\u201d": `see https://github.com[\u2215|looks like /]acme, it` + "\u2019s one two three four \u201cfive\u201d\n=> \\u2215 looks like /",
		"\u0441 \u0435 \u0440 \u043e \u0430": `[\u0441|looks like c] [\u0435|looks like e] [\u0440|looks like p] [\u043e|looks like o] [\u0430|looks like a]` +
			"\n=> \"\\u0441\" looks like \"c\"\n=> \"\\u0435\" looks like \"e\"\n=> \"\\u0440\" looks like \"p\"\n=> 2 more words of mixed letters, or like others",
	} {
		if got := drawn(text); got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", text, got, want)
		}
	}
	for _, text := range []string{"yes\u201d, \u201cadmin\u201d: \u201cyes", "it is a text that is read\u201d, \u201cadmin\u201d: \u201cyes"} {
		quoted, _ := json.Marshal(map[string]string{"reason": text})
		for _, notes := range [][]string{visible.NotesInJSON(quoted), visible.InJSON(text).Notes, visible.Notes(string(quoted))} {
			if !slices.Contains(notes, `\u201d looks like "`) {
				t.Errorf("in %s: %q", quoted, notes)
			}
		}
	}
	if got := visible.NotesInJSON([]byte("{\"\u0430\": [\"\u0435\", 1")); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// tableOf is what the generated table has: characters, each with the text that it looks like.
func tableOf(t *testing.T) (all [][2]string) {
	source, err := os.ReadFile("confusables.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\t\{(".*"), (".*")\},$`).FindAllStringSubmatch(string(source), -1) {
		looks, err := strconv.Unquote(line[1])
		if err != nil {
			t.Fatal(err)
		}
		characters, err := strconv.Unquote(line[2])
		if err != nil {
			t.Fatal(err)
		}
		for c := range strings.SplitSeq(characters, "") {
			all = append(all, [2]string{c, looks})
		}
	}
	return all
}

func TestConfusablesAreMarked(t *testing.T) {
	t.Parallel()
	all := tableOf(t)
	if len(all) < 1900 {
		t.Fatalf("the table has %d characters", len(all))
	}
	random := rand.New(rand.NewPCG(51, 5))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, one := range all[:500] {
		c, looks := one[0], one[1]
		if known, is := visible.NewKnown([]string{"acme" + looks + "shop"}).Like("acme" + c + "shop"); !is {
			t.Errorf("%U is not known as %q, but as %q", []rune(c)[0], looks, known)
		}
		for _, text := range []string{c, "acme" + c + "shop", "tool/a" + c + "b c"} {
			s := visible.Of(text)
			marked := slices.ContainsFunc(s.Lines[0], func(p visible.Piece) bool {
				return (p.Kind == visible.Alike || p.Kind == visible.Escape) && strings.HasPrefix(p.Text, `\u`)
			})
			if !marked || len(s.Notes) == 0 {
				t.Errorf("%q, with %U, has the notes %q and is drawn as %s", text, []rune(c)[0], s.Notes, drawn(text))
			}
		}
	}
}
