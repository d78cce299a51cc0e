package lsp

import (
	"fmt"
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

// find lists the places of the name under the cursor: where files that its own file sees define it, and where files that see
// its own, too, use it.
func (w *workspace) find(uri string, p position, definitions, uses bool) []location {
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
		if !seenFrom(d.file, file) && !(uses && seenFrom(file, d.file)) {
			continue
		}
		uri, text := w.uriOf(d.dir, file), string(content[file])
		at := walker{text: text}
		add := func(u use) {
			if asked := u.defines && definitions || !u.defines && uses; !asked || len(all) == mostFound || !slices.ContainsFunc(wanted, u.same) {
				return
			}
			if one := (location{uri, at.rangeOf(u.from, u.to)}); len(all) == 0 || all[len(all)-1] != one {
				all = append(all, one)
			}
		}
		usesIn(file, text, o, add)
		for _, n := range wanted {
			if line, column := definedIn(o, file, content[file], n); line > 0 {
				from := at.find(line-1, column-1)
				add(use{name: n, from: from, to: from + 1, defines: true})
			}
		}
	}
	return all
}

// definedIn is where a file defines a name that it does not write: an entity, or a policy or an obligation of an access
// declaration. The line is 0 if it does not.
func definedIn(o *pdp.Outline, file string, text []byte, n name) (line, column int) {
	declares := strings.HasPrefix(inHome(file), "access/")
	switch {
	case o == nil:
	case n.is == entity && strings.HasPrefix(inHome(file), "entities/"):
		return o.EntityIn(file, text, n.of, n.id)
	case n.is == obligation && declares:
		for _, one := range o.Obligations() {
			if one.Name == n.id && one.File == file {
				return one.Line, one.Column
			}
		}
	case n.is == policy && declares:
		for _, one := range o.Policies() {
			if at, is := strings.CutPrefix(one.Position, file+":"); is && one.ID == n.id {
				_, _ = fmt.Sscanf(at, "%d:%d", &line, &column) // a position is always so
			}
		}
	}
	return line, column
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
