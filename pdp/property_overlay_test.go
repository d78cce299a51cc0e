package pdp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go/types"
)

// TestPropertyOverlay holds what SEMANTICS.md 2 says of stored and sent
// attributes, and of parents that attributes give, to a second reading of it that
// knows nothing of the engine's.
func TestPropertyOverlay(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 100, func(t *testing.T, g *generator) {
		w := g.world(1)
		b, s := w.load(t), readStored(t, w)
		for range 40 {
			a := g.question(w)
			call := a.call(t)
			q, err := questionOf(b, viewOf(b, call), call)
			if err != nil {
				continue
			}
			e := s.expected(w.config, a)
			principal := described(q.Entities.Principal)
			seen.count("some parents", strings.Contains(e, "Group"))
			seen.count("stored and sent", len(a.members[inSubject]) > 0 && s[a.subject] != nil)
			if principal != e {
				t.Fatalf("seed %d: the principal is\n%s\nand should be\n%s\n%s%s", g.seed, principal, e, w, a)
			}
		}
	})
	seen.atLeast(t, "some parents", 30)
	seen.atLeast(t, "stored and sent", 20)
}

// storedEntities are a world's entities by type and id, read back.
type storedEntities map[[2]string]*storedText

type storedText struct {
	UID     entityRef                  `json:"uid"`
	Attrs   map[string]json.RawMessage `json:"attrs"`
	Parents []entityRef                `json:"parents"`
}

func readStored(t *testing.T, w world) storedEntities {
	s := storedEntities{}
	for _, text := range w.entities {
		e := new(storedText)
		if err := json.Unmarshal([]byte(text), e); err != nil {
			t.Fatal(err)
		}
		s[[2]string{e.UID.Type, e.UID.ID}] = e
	}
	return s
}

// expected describes the principal of a request.
func (s storedEntities) expected(config string, a asked) string {
	e, known := s[a.subject]
	if !known {
		e = &storedText{}
	}
	mode := "fill"
	for _, m := range []string{"store", "request"} {
		if strings.Contains(config, a.subject[0]+": "+m) {
			mode = m
		}
	}
	attributes := map[string]string{}
	for name, raw := range e.Attrs {
		attributes[name] = string(raw)
	}
	for name, raw := range a.sentOfSubject() {
		_, stored := attributes[name]
		switch {
		case known && (mode == "store" || mode == "fill" && stored):
		case raw == unusableText:
			delete(attributes, name)
		default:
			attributes[name] = raw
		}
	}
	return describe(attributes, append(slices.Clone(e.Parents), parentsIn(config, a.subject[0], attributes)...))
}

const unusableText = "1.5"

// sentOfSubject is what a request says of its subject. What only the resource
// says of it is unusable.
func (a asked) sentOfSubject() map[string]string {
	sent := maps.Clone(a.members[inSubject])
	if a.subject == a.resource {
		for name := range a.members[inResource] {
			if _, ok := sent[name]; !ok {
				sent[name] = unusableText
			}
		}
	}
	return sent
}

// parentsIn are the parents that attributes give.
func parentsIn(config, typ string, attributes map[string]string) []entityRef {
	rule, ok := map[string]pair{"User": {"roles", "Group"}, "Doc": {"folders", "Folder"}}[typ]
	var ids []string
	if !ok || !strings.Contains(config, "parents:") || json.Unmarshal([]byte(attributes[rule.name]), &ids) != nil {
		return nil
	}
	return refs(rule.raw, ids)
}

func describe(attributes map[string]string, parents []entityRef) string {
	var lines []string
	for name, raw := range attributes {
		lines = append(lines, name+" = "+inOrder(raw))
	}
	for _, p := range parents {
		lines = append(lines, fmt.Sprintf("in %s::%q", p.Type, p.ID))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// inOrder writes a list of strings in order: it becomes a set.
func inOrder(raw string) string {
	var list []string
	if json.Unmarshal([]byte(raw), &list) != nil {
		return raw
	}
	slices.Sort(list)
	return jsonText(list)
}

func described(e types.Entity) string {
	attributes := map[string]string{}
	for name, value := range e.Attributes.All() {
		attributes[string(name)] = jsonText(value)
	}
	var parents []entityRef
	for p := range e.Parents.All() {
		parents = append(parents, entityRef{string(p.Type), string(p.ID)})
	}
	return describe(attributes, parents)
}
