package lsp

import (
	"maps"
	"path"
	"slices"
	"strings"

	"policy-service/pdp"
)

// known is an open document of a bundle whose names are known. Any other file is none of ours.
func (w *workspace) known(uri string) (d document, o *pdp.Outline, ok bool) {
	d, o, ok = w.at(uri)
	return d, o, ok && (o != nil || w.isOurs(d.dir, w.texts(d.dir)))
}

// define says where the word under the cursor is defined; nil if that is nowhere.
func (w *workspace) define(uri string, p position) *location {
	all := w.find(uri, p, func(u use) bool { return u.defines }, 1)
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// refer lists where the word under the cursor stands in the bundle, with its definition if that is asked for.
func (w *workspace) refer(uri string, p position, definition bool) []location {
	return w.find(uri, p, func(u use) bool { return definition || !u.defines }, mostFound)
}

// find lists the places of the name under the cursor, in the files that its own file sees, and, of uses, in those that see it.
func (w *workspace) find(uri string, p position, is func(use) bool, most int) []location {
	all := []location{}
	d, o, ok := w.known(uri)
	if !ok {
		return all
	}
	var wanted []name
	cursor := offsetOf(d.text, p)
	usesIn(d.file, d.text, o, func(u use) {
		if u.from <= cursor && cursor <= u.to {
			wanted = append(wanted, u.name)
		}
	})
	if len(wanted) == 0 {
		return all
	}
	source, _ := w.source(d.dir)
	content := source.Read().Content
	maps.Copy(content, source.ReadTests().Content)
	for _, file := range slices.Sorted(maps.Keys(content)) {
		if !seenFrom(d.file, file) && (most == 1 || !seenFrom(file, d.file)) {
			continue
		}
		uri, text := w.uriOf(d.dir, file), string(content[file])
		at := walker{text: text}
		add := func(u use, as func() textRange) {
			if same := func(n name) bool { return n.same(u.name) }; len(all) >= most || !is(u) || !slices.ContainsFunc(wanted, same) {
				return
			}
			if one := (location{uri, as()}); len(all) == 0 || all[len(all)-1] != one {
				all = append(all, one)
			}
		}
		if strings.HasPrefix(inHome(file), "entities/") {
			for _, n := range wanted {
				if line, column := entityIn(o, file, content[file], n); line > 0 {
					add(use{name: n, defines: true}, func() textRange { return wordAt(text, line, column) })
				}
			}
			continue
		}
		usesIn(file, text, o, func(u use) { add(u, func() textRange { return at.rangeOf(u.from, u.to) }) })
	}
	return all
}

// entityIn is where a file of entities defines an entity. The line is 0 if it does not.
func entityIn(o *pdp.Outline, file string, text []byte, n name) (line, column int) {
	if o == nil || n.is != entity {
		return 0, 0
	}
	return o.EntityIn(file, text, n.of, n.id)
}

// symbols lists the definitions of a document.
func (w *workspace) symbols(uri string) []symbol {
	all := []symbol{}
	d, o, ok := w.known(uri)
	if !ok {
		return all
	}
	at := walker{text: d.text}
	usesIn(d.file, d.text, o, func(u use) {
		kind := symbolKinds[u.is]
		if !u.defines || kind == 0 || u.end == 0 || len(all) == mostFound {
			return
		}
		begin := at.position(u.begin)
		word := at.rangeOf(u.from, u.to)
		all = append(all, symbol{u.id, u.detail, kind, textRange{begin, at.position(u.end)}, word})
	})
	return all
}

// symbolKinds are the kinds of the protocol.
var symbolKinds = map[thing]int{policy: 12, obligation: 24, testName: 6, entityType: 5, entity: 12}

// inHome is a file without the directory of its tenant.
func inHome(file string) string {
	if parts := strings.SplitN(file, "/", 3); len(parts) == 3 && parts[0] == "tenants" {
		return parts[2]
	}
	return file
}

// seenFrom reports whether the policies of one file see the content of another one: that of the same tenant, and of the
// root.
func seenFrom(file, other string) bool {
	home := strings.TrimSuffix(other, inHome(other))
	return strings.HasPrefix(file, home)
}

// format lays the policies of a document out. There is nothing to edit if that is not possible.
func (w *workspace) format(uri string) []textEdit {
	d, _, ok := w.at(uri)
	if !ok || path.Ext(d.file) != ".cedar" {
		return []textEdit{}
	}
	laid, problems := pdp.Format(d.file, []byte(d.text))
	if len(problems) > 0 || string(laid) == d.text {
		return []textEdit{}
	}
	return []textEdit{{rangeOf(d.text, 0, len(d.text)), string(laid)}}
}
