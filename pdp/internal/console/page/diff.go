package page

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff/lcs"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/visible"
)

// Step is one difference between a value and that of the last time, or a line beside one. It stands next to the value, and
// never in its place, so that it can leave out parts that are the same.
type Step struct {
	Change Change
	// Path is the place of a member in the value, such as files[2].mode. It is empty for a line of a text.
	Path     Text
	Now, Was Value
	// Skipped is how many lines are the same here, and left out: the step has nothing else then.
	Skipped int
}

// Part is a part of a text. Differs says that the other text has something else there, or nothing.
type Part struct {
	Text    Text
	Differs bool
}

const (
	mostSteps = 20  // of a value, until all is asked for
	sameLines = 2   // that stand before and after a difference
	samePart  = 10  // words at each end of a part that is the same, if a step has it
	longPath  = 120 // characters
	flatValue = 60  // characters of a value that stands beside another one
)

// compare has a row show how its value, at a path, differs from another one.
func (r *Row) compare(path Text, now, was jsontext.Value) {
	r.Change, r.Value, r.Was = Differs, JSON(now), JSON(was)
	switch {
	case !r.Value.Quoted || !r.Was.Quoted:
		d := differ{}
		if now.Kind() == was.Kind() && (now.Kind() == '{' || now.Kind() == '[') && sorted(&now) && sorted(&was) {
			d.member(path, now, was, 0)
		}
		r.Steps, r.Others = d.steps, d.same
	case r.Value.long() || r.Was.long():
		r.Steps = lineSteps(r.Value.Text, r.Was.Text)
	}
	if len(r.Steps) == 0 {
		r.Value.Change, r.Was.Change = New, Gone
		if r.Value.Quoted && r.Was.Quoted && !r.Value.long() && !r.Was.long() {
			mark(&r.Value, &r.Was, false)
		}
	}
}

// long reports if the value has several lines, or is cut, or is drawn so long that a part of it would be.
func (v Value) long() bool {
	_, left := cut(joined(v.Text.shown.Lines), longLine)
	return len(v.Text.shown.Lines) > 1 || v.Text.Cut() || left
}

// flat reports if the value is short enough to stand beside another one.
func (v Value) flat() bool {
	_, left := cut(joined(v.Text.shown.Lines), flatValue)
	return !v.long() && !left
}

// mark divides two texts on one line each into parts. A step shortens parts that are the same.
func mark(now, was *Value, shorten bool) {
	now.Change, was.Change = New, Gone
	a, b := words(now.Text), words(was.Text)
	var atNow, atWas int
	for _, d := range joinedDiffs(b, lcs.DiffLines(keys(b), keys(a))) {
		now.part(a[atNow:d.ReplStart], false, shorten)
		was.part(b[atWas:d.Start], false, shorten)
		now.part(a[d.ReplStart:d.ReplEnd], true, false)
		was.part(b[d.Start:d.End], true, false)
		atNow, atWas = d.ReplEnd, d.End
	}
	if atNow+atWas > 0 { // otherwise nothing that is drawn differs, and all of it is marked
		now.part(a[atNow:], false, shorten)
		was.part(b[atWas:], false, shorten)
	}
}

func (v *Value) part(pieces []visible.Piece, differs, shorten bool) {
	if left := len(pieces) - 2*samePart; shorten && left > 0 {
		same := visible.Piece{Text: more.Text, Kind: more.Kind, Note: fmt.Sprintf("%d words and signs are the same", left)}
		pieces = slices.Concat(pieces[:samePart], []visible.Piece{same}, pieces[len(pieces)-samePart:])
	}
	if len(pieces) > 0 {
		v.Parts = append(v.Parts, Part{lineOf(merged(pieces), false), differs})
	}
}

// joinedDiffs has differences be one if no word stands between them.
func joinedDiffs(was []visible.Piece, diffs []lcs.Diff) (all []lcs.Diff) {
	for _, d := range diffs {
		if n := len(all); n > 0 && !slices.ContainsFunc(was[all[n-1].End:d.Start], func(p visible.Piece) bool {
			return strings.ContainsFunc(p.Text, inWord)
		}) {
			all[n-1].End, all[n-1].ReplEnd = d.End, d.ReplEnd
			continue
		}
		all = append(all, d)
	}
	return all
}

// words are the words, signs and marks of a text on one line.
func words(t Text) (all []visible.Piece) {
	for _, p := range joined(whole(t.shown)) {
		if p.Kind != visible.Plain {
			all = append(all, p)
			continue
		}
		for text := p.Text; text != ""; {
			n := wordLength(text)
			all = append(all, visible.Piece{Text: text[:n]})
			text = text[n:]
		}
	}
	return all
}

// wordLength is how long the word or sign is that a text begins with. It parts no mark from its letter, and no doubled
// backslash.
func wordLength(text string) int {
	if strings.HasPrefix(text, `\\`) {
		return len(`\\`)
	}
	first, n := utf8.DecodeRuneInString(text)
	rest := strings.TrimLeftFunc(text[n:], func(r rune) bool { return unicode.IsMark(r) || inWord(first) && inWord(r) })
	return len(text) - len(rest)
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// keys are texts that are the same for pieces that are drawn the same.
func keys(pieces []visible.Piece) (all []string) {
	for _, p := range pieces {
		all = append(all, string(rune('0'+p.Kind))+p.Text)
	}
	return all
}

// lineOf is a text of one line.
func lineOf(line []visible.Piece, rightToLeft bool) Text {
	if len(line) == 0 {
		line = []visible.Piece{{Text: "⏎", Kind: visible.Spaces, Note: "an empty line"}}
	}
	return onOneLine(Text{visible.Shown{Lines: [][]visible.Piece{line}, RightToLeft: rightToLeft}})
}

// lineSteps are the lines in which two texts differ, and some around them.
func lineSteps(now, was Text) (steps []Step) {
	a, b := whole(now.shown), whole(was.shown)
	of := func(lines [][]visible.Piece) (all []string) {
		for _, line := range lines {
			all = append(all, strings.Join(keys(line), "\n")) // no piece has a line end
		}
		return all
	}
	line := func(pieces []visible.Piece, as Change) Value {
		return Value{Text: lineOf(pieces, now.RightToLeft() || was.RightToLeft()), Change: as}
	}
	same := func(lines [][]visible.Piece, before, after int) {
		left := len(lines) - before - after
		for n, l := range lines {
			switch {
			case n < before, n >= before+left, left == 1:
				steps = append(steps, Step{Change: Same, Now: line(l, Uncompared)})
			case n == before:
				steps = append(steps, Step{Change: Same, Skipped: left})
			}
		}
	}
	at, before := 0, 0
	for _, d := range lcs.DiffLines(of(b), of(a)) {
		same(a[at:d.ReplStart], before, sameLines)
		var gone, added []Step
		for _, l := range b[d.Start:d.End] {
			gone = append(gone, Step{Change: Gone, Was: line(l, Gone)})
		}
		for _, l := range a[d.ReplStart:d.ReplEnd] {
			added = append(added, Step{Change: New, Now: line(l, New)})
		}
		for n := 0; n < len(gone) && len(gone) == len(added); n++ { // each line became another one
			mark(&added[n].Now, &gone[n].Was, true)
		}
		steps = slices.Concat(steps, gone, added)
		at, before = d.ReplEnd, sameLines
	}
	if len(steps) > 0 {
		same(a[at:], before, 0)
	}
	return steps
}

// differ finds the members in which two JSON values differ.
type differ struct {
	steps []Step
	same  int // members that are the same
}

// sorted gives a value one form, and reports if it has one. Numbers stay as they are written.
func sorted(v *jsontext.Value) bool {
	*v = v.Clone()
	return v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) == nil
}

// member compares two values that are sorted. A value that is not there is nil. Below some levels they are compared as
// wholes: each level reads all below it.
func (d *differ) member(path Text, now, was jsontext.Value, depth int) {
	kind := now.Kind()
	switch {
	case bytes.Equal(now, was):
		d.same++
		return
	case depth < jsonDepth && kind == was.Kind() && kind == '{':
		d.object(path, now, was, depth)
		return
	case depth < jsonDepth && kind == was.Kind() && kind == '[':
		d.array(path, now, was, depth)
		return
	}
	s := Step{Change: Differs, Path: path, Now: ofMember(now, New), Was: ofMember(was, Gone)}
	switch {
	case was == nil:
		s.Change = New
	case now == nil:
		s.Change = Gone
	case s.Now.Quoted && s.Was.Quoted:
		mark(&s.Now, &s.Was, true)
	}
	d.steps = append(d.steps, s)
}

// ofMember is a value within another one: a text has one line there, too.
func ofMember(v jsontext.Value, as Change) (value Value) {
	if v == nil {
		return value
	}
	value = JSON(v)
	if value.Change = as; value.Quoted {
		value.Text = onOneLine(value.Text)
	}
	return value
}

func (d *differ) object(path Text, now, was jsontext.Value, depth int) {
	before, then := map[string]jsontext.Value{}, members(was)
	for _, m := range then {
		before[m.name] = m.value
	}
	for _, m := range members(now) {
		d.member(pathTo(path, m.name), m.value, before[m.name], depth+1)
		delete(before, m.name)
	}
	for _, m := range then {
		if _, gone := before[m.name]; gone {
			d.member(pathTo(path, m.name), nil, m.value, depth+1)
		}
	}
}

// array pairs the elements at the same place between elements that are the same.
func (d *differ) array(path Text, now, was jsontext.Value, depth int) {
	a, b := elements(now), elements(was)
	d.same += len(a)
	for _, x := range lcs.DiffLines(b, a) {
		d.same -= x.ReplEnd - x.ReplStart
		for n := range max(x.ReplEnd-x.ReplStart, x.End-x.Start) {
			var to, from jsontext.Value
			at := x.Start + n
			if at < x.End {
				from = jsontext.Value(b[at])
			}
			if i := x.ReplStart + n; i < x.ReplEnd {
				at, to = i, jsontext.Value(a[i])
			}
			d.member(pathWith(path, func(w *jsonLines) { w.put(fmt.Sprintf("[%d]", at)) }), to, from, depth+1)
		}
	}
}

func elements(v jsontext.Value) (all []string) {
	var values []jsontext.Value
	_ = json.Unmarshal(v, &values) // it was sorted, and so can be read
	for _, one := range values {
		all = append(all, string(one))
	}
	return all
}

// pathTo is the path to a member. A name that is more than a word is in brackets and quotes, and so cannot pass for a path.
func pathTo(path Text, name string) Text {
	return pathWith(path, func(w *jsonLines) {
		other := func(r rune) bool { return r >= utf8.RuneSelf || !inWord(r) && r != '_' && r != '-' }
		switch {
		case name == "" || strings.ContainsFunc(name, other):
			w.put("[")
			w.quoted(name)
			w.put("]")
		case path.Empty():
			w.put(name)
		default:
			w.put("." + name)
		}
	})
}

// pathWith is a longer path. It is never whole if it is long: many members may have it.
func pathWith(path Text, add func(*jsonLines)) Text {
	w := jsonLines{line: joined(path.shown.Lines), rtl: path.RightToLeft()}
	add(&w)
	return Text{visible.Shown{Lines: [][]visible.Piece{merged(w.line)}, RightToLeft: w.rtl}}.Brief(longPath)
}
