package coaz

import "policy-service/evaluation"

// SelectSingular is the node that a singular query selects in any document, for the suite that judges it.
func SelectSingular(query string, document evaluation.Value) (nodes []evaluation.Value, ok bool) {
	steps, ok := parseSingular(query)
	for _, s := range steps {
		var found bool
		if document, found = s.in(document); !found {
			return nil, ok
		}
	}
	return []evaluation.Value{document}, ok
}

// NewWithin is New with other limits.
func NewWithin(o Options, limits Limits) (*Binding, error) { return newBinding(o, limits) }
