package lsp

import (
	"slices"
	"strings"
	"unicode"

	"policy-service/pdp"
	"policy-service/pdp/internal/places"
)

// mended are the edits that mend problems of a text. They are for that text alone.
type mended struct {
	text  string
	edits []mend
}

// mend is an edit, and the diagnostic that it takes away.
type mend struct {
	diagnostic diagnostic
	edit       textEdit
}

// mendOf is the edit that mends a problem. It is not ok if there is none, or the text is another one than was read.
func mendOf(p pdp.Problem, d diagnostic, text string) (m mend, ok bool) {
	if p.Mend.Word == "" || p.Line == 0 {
		return m, false
	}
	at := places.Offset(text, p.Line, p.Column)
	for _, quote := range []string{"", `"`, "'"} {
		if strings.HasPrefix(text[at:], quote+p.Mend.Word) {
			from := at + len(quote)
			return mend{d, textEdit{rangeOf(text, from, from+len(p.Mend.Word)), p.Mend.Meant}}, true
		}
	}
	return m, false
}

// actions offers an edit for each problem in a part of a document that has one. Behind a change there is none until the
// bundle is checked again: an edit is for the text that it was made from.
func (w *workspace) actions(p *params) []codeAction {
	all := []codeAction{}
	uri := p.TextDocument.URI
	d, _, ok := w.at(uri)
	if only := p.Context.Only; !ok || len(only) > 0 && !slices.Contains(only, quickFix) {
		return all
	}
	w.mu.Lock()
	of, version, versions := w.mends[d.dir][d.file], w.versions[uri], w.versioned
	w.mu.Unlock()
	if of.text != d.text {
		return all
	}
	for _, m := range of.edits {
		if r := m.diagnostic.Range; before(p.Range.End, r.Start) || before(r.End, p.Range.Start) {
			continue
		}
		edits := workspaceEdit{Changes: map[string][]textEdit{uri: {m.edit}}}
		if versions {
			edits = workspaceEdit{DocumentChanges: []documentEdit{{versioned{uri, version}, []textEdit{m.edit}}}}
		}
		all = append(all, codeAction{"Write " + shown(m.edit.NewText), quickFix, []diagnostic{m.diagnostic}, true, edits})
	}
	return all
}

func before(a, b position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Character < b.Character
}

// shown is the beginning of a text, in one line.
func shown(text string) string {
	const most = 80
	visible := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) || unicode.IsSpace(c) {
			return c
		}
		return unicode.ReplacementChar
	}, strings.Join(strings.Fields(text), " "))
	if all := []rune(visible); len(all) > most {
		return string(all[:most]) + "…"
	}
	return visible
}
