package lsp

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/pdp"
	"policy-service/pdp/internal/places"
	"policy-service/pdp/internal/visible"
)

// checked are the diagnostics of a text. Their edits are for that text alone.
type checked struct {
	text string
	all  []diagnostic
}

// mendOf is the edit that mends a problem; nil if there is none, or the text is another one than was read.
func mendOf(p pdp.Problem, text string) *textEdit {
	if p.Mend.Word == "" || p.Line == 0 {
		return nil
	}
	at := places.Offset(text, p.Line, p.Column)
	for _, quote := range []string{"", `"`, "'"} {
		if strings.HasPrefix(text[at:], quote+p.Mend.Word) {
			from := at + len(quote)
			return &textEdit{rangeOf(text, from, from+len(p.Mend.Word)), p.Mend.Meant}
		}
	}
	return nil
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
	of, document := w.checked[uri], versioned{uri, w.versions[uri]}
	w.mu.Unlock()
	if of.text != d.text {
		return all
	}
	for _, one := range of.all {
		if one.mend == nil || before(p.Range.End, one.Range.Start) || before(one.Range.End, p.Range.Start) {
			continue
		}
		edits := workspaceEdit{[]documentEdit{{document, []textEdit{*one.mend}}}}
		all = append(all, codeAction{title(one.mend.NewText), quickFix, []diagnostic{one}, true, edits})
	}
	return all
}

func before(a, b position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Character < b.Character
}

// title is of an edit that writes a text, whose end a list of edits need not show.
func title(text string) string { return fmt.Sprintf("Write %.80s", visible.Text(text)) }
