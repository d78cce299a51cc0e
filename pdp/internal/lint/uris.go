package lint

import (
	"iter"
	"regexp"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// climbing are ends of URIs that lead out of the directory before them, if the server reads them so.
var climbing = []string{"../x", "%2e%2e/x", "%2E%2E/x", `x\..\..\x`}

// directory is how all URIs below a directory begin. Below the root of a host, no URI leads elsewhere.
var directory = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?/[^/].*/$`)

// uris warns of policies of a view that know resources by the directory in which their URIs begin: file:///docs/../x begins
// in file:///docs/. There is no warning if other patterns match such URIs, in the policy itself or in a forbid.
func (l *linter) uris(v *bundle.View) {
	var fences []types.Pattern
	for _, p := range v.Policies {
		if p.Forbids() {
			fences = append(fences, idPatterns(p.Terms())...)
		}
	}
	for _, p := range v.Policies {
		if p.Tenant != v.Tenant {
			continue
		}
		own := idPatterns(p.Terms())
		for begin := range directories(p.Terms()) {
			tells := func(end string) bool {
				return slices.ContainsFunc(slices.Concat(own, fences), func(f types.Pattern) bool {
					return f.Match(types.String(begin+end)) && !f.Match(types.String(begin+"x"))
				})
			}
			if n := slices.IndexFunc(climbing, func(end string) bool { return !tells(end) }); n >= 0 {
				l.warnAt(placeOfLike(begin), p, "uri_climbs",
					"knows resources by how their URIs begin, and "+bundle.Quote(begin+climbing[n])+" begins so, too, and may lead elsewhere",
					`forbid … when { context.pdp.resource.id like "*/.*" || context.pdp.resource.id like "*%*" || context.pdp.resource.id like "*\\*" }; `+
						"an MCP gateway refuses most such URIs itself if upstreams.NAME.uris says which are the server's")
			}
		}
	}
}

// directories are those in which a URI of the resource must begin, each once.
func directories(terms []*bundle.Term) map[string]bool {
	found := map[string]bool{}
	for t := range termsIn(terms) {
		if t.Op == bundle.OpTest && t.Test.Of == bundle.ResourceVar && directory.MatchString(t.Test.Prefix) {
			found[t.Test.Prefix] = true
		}
	}
	return found
}

// idPatterns are other patterns for the id of the resource.
func idPatterns(terms []*bundle.Term) (found []types.Pattern) {
	for t := range termsIn(terms) {
		if t.Op == bundle.OpLike && t.Args[0].Op == bundle.OpPath && t.Args[0].Path.String() == "context.pdp.resource.id" {
			found = append(found, t.Pattern)
		}
	}
	return found
}

// termsIn are terms and all that are in them.
func termsIn(terms []*bundle.Term) iter.Seq[*bundle.Term] {
	return func(yield func(*bundle.Term) bool) { inspect(terms, yield) }
}

func inspect(terms []*bundle.Term, yield func(*bundle.Term) bool) (whole bool) {
	return !slices.ContainsFunc(terms, func(t *bundle.Term) bool { return !yield(t) || !inspect(t.Args, yield) })
}
