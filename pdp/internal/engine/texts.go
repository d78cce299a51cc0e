package engine

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
)

// textPattern is what a text is compared with: characters, and anyText in the place of any text.
type textPattern []rune

const anyText rune = -1

// literal is the pattern of one text alone.
func literal(text string) textPattern { return textPattern(text) }

// patternOf is the pattern of like. cedar-go shows what is in it as JSON alone.
func patternOf(like types.Pattern) (p textPattern, ok bool) {
	text, err := like.MarshalJSON()
	var parts []any
	if err != nil || json.Unmarshal(text, &parts) != nil {
		return nil, false
	}
	for _, part := range parts {
		if literal, ok := part.(map[string]any); ok {
			text, _ := literal["Literal"].(string)
			p = append(p, []rune(text)...)
			continue
		}
		p = append(p, anyText)
	}
	return p, true
}

// mostStates bounds the search for texts, and mostPlaces the length of a pattern.
const (
	mostStates = 4096
	mostPlaces = 64
)

// textsFor finds short texts for every way in which some text can match the patterns: of any text
// there is, one of these matches the same patterns. There are so many of each way, if there are so many.
// It reports false if that takes too long.
//
// It follows all texts at once, character by character. Only how far each pattern has come tells
// two texts apart, so a text that comes where enough others came before is not followed.
func textsFor(patterns []textPattern, each int) (texts []string, ok bool) {
	all, long := patterns, []string(nil) // a long text that is compared as a whole is a way of its own
	patterns = nil
	for _, p := range all {
		switch {
		case len(p) >= mostPlaces && !slices.Contains(p, anyText):
			if text := string(p); !slices.Contains(long, text) {
				long = append(long, text)
			}
		case !slices.ContainsFunc(patterns, func(q textPattern) bool { return slices.Equal(p, q) }):
			patterns = append(patterns, p)
		}
		if len(patterns)+len(long) > mostTexts {
			return nil, false
		}
	}
	each += len(long)
	letters := lettersOf(patterns)
	type state struct {
		text   []rune
		places []uint64 // by pattern: the places up to which the text matches
	}
	begin := state{places: make([]uint64, len(patterns))}
	for n, p := range patterns {
		if len(p) >= mostPlaces {
			return nil, false
		}
		begin.places[n] = p.past(1)
	}
	seen, found := map[string]int{key(begin.places): 1}, map[string]int{}
	states := 1
	for todo := []state{begin}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		matches := make([]uint64, len(patterns))
		for n, p := range patterns {
			matches[n] = at.places[n] >> len(p) & 1
		}
		if k := key(matches); found[k] < each {
			found[k]++
			texts = append(texts, string(at.text))
		}
		for _, letter := range letters {
			next := state{text: append(slices.Clone(at.text), letter), places: make([]uint64, len(patterns))}
			for n, p := range patterns {
				next.places[n] = p.step(at.places[n], letter)
			}
			if k := key(next.places); seen[k] < each {
				if states++; states > mostStates {
					return nil, false
				}
				seen[k]++
				todo = append(todo, next)
			}
		}
	}
	for _, text := range long {
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts, true
}

// lettersOf are the characters of the patterns, in order, and one that is in none.
func lettersOf(patterns []textPattern) []rune {
	letters := slices.Concat(patterns...)
	slices.Sort(letters)
	letters = slices.DeleteFunc(slices.Compact(letters), func(r rune) bool { return r == anyText })
	other := 'x'
	for slices.Contains(letters, other) {
		other++
	}
	return append(letters, other)
}

// past adds the places behind each anyText that is reached: it can stand for nothing.
func (p textPattern) past(places uint64) uint64 {
	for n, r := range p {
		if r == anyText && places>>n&1 == 1 {
			places |= 1 << (n + 1)
		}
	}
	return places
}

// step are the places after one more character.
func (p textPattern) step(places uint64, letter rune) (next uint64) {
	for n, r := range p {
		switch {
		case places>>n&1 == 0:
		case r == anyText:
			next |= 1 << n
		case r == letter:
			next |= 1 << (n + 1)
		}
	}
	return p.past(next)
}

func key(numbers []uint64) string {
	var b strings.Builder
	for _, n := range numbers {
		var eight [8]byte
		binary.LittleEndian.PutUint64(eight[:], n)
		b.Write(eight[:])
	}
	return b.String()
}
