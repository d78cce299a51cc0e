package engine

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// readTemplates finds the obligations into which hidden values are filled.
func (h *hiding) readTemplates(policies bundle.PolicyList, w *Worlds) {
	var all []*obligations.Definition
	of := map[*obligations.Definition][]string{}
	for _, p := range policies {
		for _, d := range p.Obliges {
			if of[d] = append(of[d], p.Id); !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	for _, d := range all {
		if !slices.Contains(h.owed, d.Type.Name) && h.undeclared(d.Type.Name) {
			h.owed = append(h.owed, d.Type.Name)
		}
		for _, text := range textsIn(d.Properties) {
			names, _ := obligations.Variables(text)
			for _, name := range names {
				for _, p := range h.filledFrom(name) {
					w.Filled[d.Name] = d.Properties
					for _, id := range of[d] {
						p.readers[id] = true
					}
					h.fill(w, p, name, text, d, all)
				}
			}
		}
	}
}

// undeclared reports whether the PEP declares a type only if it does so in a hidden place.
func (h *hiding) undeclared(typ string) bool {
	registered := !h.in.Asker.Registered || slices.Contains(h.in.Asker.Obligations, typ)
	return registered && !h.in.declared()(typ) && !h.in.Bundle.Config.AllowUndeclared
}

// textsIn are all strings in an object.
func textsIn(o evaluation.Object) (all []string) {
	_, _ = o.MapStrings(func(text string) (string, bool) {
		all = append(all, text)
		return text, true
	})
	return all
}

// filledFrom are the places whose value a variable of a template may have, or may lie in.
func (h *hiding) filledFrom(variable string) (all []*place) {
	names, ok := obligations.Path(variable)
	if !ok {
		return nil
	}
	for _, p := range h.places {
		at := len(p.path.Names)
		if p.path.Root != "context" || p.unseen || p.element || at > len(names) || !slices.Equal(p.path.Names, names[:at]) {
			continue
		}
		switch {
		case at == len(names) && p.fillsText(): // of any other value nothing is filled in
			all = append(all, p)
		case at < len(names) && (at == 0 && !p.Part || p.touchesInside(h, names[at]) == opens):
			all = append(all, p)
		}
	}
	return all
}

// fillsText reports whether the value of a place is of a kind that a text can show.
func (p *place) fillsText() bool { return p.isSimple() || p.isDecimal() }

func (p *place) isDecimal() bool {
	return p.shape != nil && p.shape.Form == bundle.ShapeDecimal && !p.deep && !p.reference
}

// fill takes in what a variable of a template can make of the value at a place. What the obligation
// says then is not compared. But an obligation that needs a value cannot be filled with none, and one
// that says the same as another is owed once.
func (h *hiding) fill(w *Worlds, p *place, variable, text string, d *obligations.Definition, all []*obligations.Definition) {
	if path, _ := obligations.Path(variable); len(p.path.Names) < len(path) { // nobody knows what is in it
		p.unknowable = true
		return
	}
	p.collectValue(types.String(""))
	p.filled = true
	for _, other := range all {
		if other == d || other.Type.Name != d.Type.Name {
			continue
		}
		for _, against := range textsIn(other.Properties) {
			if against != text && (p.isDecimal() || !h.equate(p, against)) {
				w.alike = append(w.alike, alikeObligations{p, d.Name, other.Name})
			}
		}
	}
}

// mostEquated is the length of a text in which every part is tried.
const mostEquated = 16

// equate takes in what makes a template the same as another text: a value in a template can only
// become a part of it. It reports false if there is too much that could.
func (h *hiding) equate(p *place, against string) bool {
	names, _ := obligations.Variables(against)
	hidden := slices.ContainsFunc(names, func(name string) bool { return len(h.filledFrom(name)) > 0 })
	filled, ok := obligations.Fill(evaluation.Object{}.With("v", valueOf(against)), h.q.variable)
	made, _ := filled.Get("v")
	text := made.Text()
	if hidden || ok && len(text) > mostEquated {
		return false
	}
	for from := range text {
		for to := from + 1; to <= len(text); to++ {
			if part := text[from:to]; utf8.ValidString(part) {
				p.patterns = append(p.patterns, literal(part))
				if n, err := strconv.ParseInt(part, 10, 64); err == nil {
					p.longs = append(p.longs, types.Long(n))
				}
			}
		}
	}
	return true
}
