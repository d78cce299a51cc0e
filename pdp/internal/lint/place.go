package lint

import (
	"slices"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/places"
)

// warnAt warns at an expression of a policy. find returns its offset, which is negative if it is not found: then the
// warning stands where the policy begins.
func (l *linter) warnAt(find func(*places.Policy) int, p *bundle.Policy, code, message, try string, mend ...document.Mend) {
	if l.placed != p { // a policy may have thousands of warnings
		l.placed, l.written = p, p.In(l.files.Content[p.File])
	}
	line, column := l.written.Position(find(l.written))
	l.problems.Warn(p.File, line, column, code, "policy "+bundle.Quote(p.Id)+" "+message, try, mend...)
}

// placeOf finds a name that a policy writes out: of an entity, a type, or an annotation with its sign.
func placeOf(name string) func(*places.Policy) int {
	return func(p *places.Policy) int { return places.Find(p.Tokens, name) }
}

// placeOfPath finds the first place where a policy reads an attribute.
func placeOfPath(path bundle.AttributePath) func(*places.Policy) int {
	return func(p *places.Policy) int {
		for _, part := range p.Reads() {
			if part.Variable == path.Root && !part.Has && slices.Equal(part.Names, path.Names) {
				return part.From
			}
		}
		return -1
	}
}

// placeOfLike finds a pattern for all that begins so.
func placeOfLike(begin string) func(*places.Policy) int {
	return func(p *places.Policy) int { return places.Find(p.Tokens, bundle.Quote(begin+"*")) }
}
