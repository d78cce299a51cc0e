package lsp

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/pdp"
	"policy-service/pdp/internal/places"
	"policy-service/pdp/visible"
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
	of, document := w.mends[d.dir][d.file], versioned{uri, w.versions[uri]}
	w.mu.Unlock()
	if of.text != d.text {
		return all
	}
	for _, m := range of.edits {
		if r := m.diagnostic.Range; before(p.Range.End, r.Start) || before(r.End, p.Range.Start) {
			continue
		}
		edits := workspaceEdit{[]documentEdit{{document, []textEdit{m.edit}}}}
		all = append(all, codeAction{title(m.edit.NewText), quickFix, []diagnostic{m.diagnostic}, true, edits})
	}
	return all
}

func before(a, b position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Character < b.Character
}

// title is of an edit that writes a text, whose end a list of edits need not show.
func title(text string) string { return fmt.Sprintf("Write %.80s", visible.Text(text)) }
