package pdp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"regexp"
	"slices"
	"strings"
)

// GeneratedWorld is a bundle by chance, and questions for it. Tests that need the decision log use it,
// which this package cannot import.
type GeneratedWorld struct {
	*generator
	obligedWorld
}

// EachWorld calls property with a world for each of so many seeds.
func EachWorld(t *testing.T, seeds uint64, property func(*testing.T, GeneratedWorld)) {
	t.Helper()
	eachSeed(t, seeds, func(t *testing.T, g *generator) {
		o := g.obliged(8)
		for n := range 4 {
			o.policies = append(o.policies, g.secretive(fmt.Sprintf("x%d", n)))
		}
		if g.chance(60) {
			g.askPeople(&o)
		}
		property(t, GeneratedWorld{g, o})
	})
}

// EachSeed calls property for each of so many seeds, until it fails.
func EachSeed(t *testing.T, seeds uint64, property func(t *testing.T, seed uint64, by *rand.Rand)) {
	t.Helper()
	eachSeed(t, seeds, func(t *testing.T, g *generator) { property(t, g.seed, g.Rand) })
}

// FewSeeds is fewSeeds.
func FewSeeds() bool { return fewSeeds() }

// askPeople makes a world in which allows wait for people, and little else keeps them from it.
func (g *generator) askPeople(o *obligedWorld) {
	for n := range o.root {
		if o.root[n].typ == "approval_required" && o.root[n].name != "approval_required" {
			o.root[n].typ = "custom"
		}
	}
	o.root = append(o.root, owing{"ask", "approval_required", "allow", `{"template":"t","message":"for ${principal.id}"}`})
	for n, condition := range []string{`true`, `context.pdp.approved && context has n && context.n == 1`, `context.pdp.approved`} {
		text := oneOf(g, "permit", "permit", "forbid") + " (principal, action, resource) when { " + condition + " };"
		if n == 0 {
			text = `@obligation("ask") permit (principal, action, resource);`
		}
		o.policies = append(o.policies, policyText{id: fmt.Sprint("ask", n), text: fmt.Sprintf(`@id("ask%d") %s`, n, text)})
	}
}

// Bundle loads the bundle of the world.
func (w GeneratedWorld) Bundle(t *testing.T) *Bundle { return w.load(t) }

// Files are the files of that bundle.
func (w GeneratedWorld) Files() map[string][]byte {
	files := map[string][]byte{}
	for name, file := range w.source().Fsys.(fstest.MapFS) {
		files[name] = file.Data
	}
	return files
}

// Source is where that bundle is.
func (w GeneratedWorld) Source() fstest.MapFS { return w.source().Fsys.(fstest.MapFS) }

// Edited is the bundle with an edit, and what that is. Some edits read one of the places that are masked.
func (w GeneratedWorld) Edited(masked []string) (files fstest.MapFS, edit string) {
	all := &w.policies
	if len(w.obligedWorld.world.tenant) > 0 && w.chance(20) {
		all = &w.obligedWorld.world.tenant
	}
	*all = slices.Clone(*all)
	n := w.IntN(len(*all))
	one := &(*all)[n]
	was := one.text
	secret := `context has n && context.n < 2`
	switch {
	case slices.Contains(masked, "/context/s"):
		secret = `context has s && context.s == "q"`
	case slices.Contains(masked, "/context/flag"):
		secret = `context has flag && context.flag`
	}
	switch w.IntN(8) {
	case 0, 6, 7:
		*all = append(*all, policyText{id: "new", text: `@id("new") ` + oneOf(w.generator, "permit", "forbid") + ` (principal, action, resource) when { ` + secret + ` };`})
		return w.source().Fsys.(fstest.MapFS), "with " + (*all)[len(*all)-1].text
	case 1:
		*all = slices.Delete(*all, n, n+1)
		return w.source().Fsys.(fstest.MapFS), "without " + was
	case 2:
		one.text = regexp.MustCompile(`@obligation\("[^"]*"\) ?`).ReplaceAllString(was, "")
	case 3:
		one.text = regexp.MustCompile(`\b(permit|forbid) ?\(`).ReplaceAllStringFunc(was, func(effect string) string {
			if strings.HasPrefix(effect, "permit") {
				return "forbid ("
			}
			return "permit ("
		})
	default:
		one.text = strings.TrimSuffix(was, ";") + oneOf(w.generator, ` unless { action == Action::"read" };`, ` when { `+secret+` };`)
	}
	return w.source().Fsys.(fstest.MapFS), was + " is " + one.text
}

// WithSecrets is a request with other values in hidden places.
func (w GeneratedWorld) WithSecrets(r evaluation.Request, hidden []evaluation.Hidden) evaluation.Request {
	for _, one := range hidden {
		one.Fit = evaluation.Fits // the record would list a place whose value did not
		if values := valuesAt(one); len(values) > 0 && w.chance(70) {
			r = putAt(r, one.At, oneOf(w.generator, values...))
		}
	}
	return r
}

// Seed names the world.
func (w GeneratedWorld) Seed() uint64 { return w.seed }

// Question makes a call for the world, by a PEP that declares something.
func (w GeneratedWorld) Question(t *testing.T) Call {
	t.Helper()
	return w.question(w.obligedWorld.world).by(t, w.declaration())
}

// Unknown has a call ask what is possible.
func (w GeneratedWorld) Unknown(t *testing.T, call Call) Call {
	t.Helper()
	u, err := evaluation.UnknownAt(some(w.generator, 20, "/context/n", "/context/s", "/context/flag", "/context/groups", "/context/pdp/approved",
		"/context", "/subject/properties/roles", "/subject/properties/n", "/resource/properties", "/resource/properties/opt", "/action/properties")...)
	must(t, err)
	call.Request.Unknown = u
	return call
}

// Native is the call in the other shape.
func (c Call) Native() Call { return c.native() }
