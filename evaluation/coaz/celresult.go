package coaz

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"policy-service/evaluation"
)

// resultWriter writes the result of an expression as JSON. Values that JSON does not have are refused, and so is what would
// become longer or deeper than any request may be.
type resultWriter struct {
	limits evaluation.Limits
	depth  int // that is left
}

func (w *resultWriter) append(b []byte, v ref.Val) (after []byte, problem string) {
	if len(b) > w.limits.Body {
		return nil, tooLong(w.limits)
	}
	switch v := v.(type) {
	case types.Null:
		return append(b, "null"...), ""
	case types.Bool:
		return strconv.AppendBool(b, bool(v)), ""
	case types.Int:
		return strconv.AppendInt(b, int64(v), 10), ""
	case types.Uint:
		return strconv.AppendUint(b, uint64(v), 10), ""
	case types.Double:
		return w.double(b, float64(v))
	case types.String:
		if !utf8.ValidString(string(v)) {
			return nil, "the expression yields text that is not valid UTF-8"
		}
		return appendQuoted(b, string(v)), ""
	case *number:
		return append(b, v.value.Text()...), ""
	case *jsonMap:
		return append(b, literalOf(v.object.Value())...), ""
	case *list:
		return append(b, literalOf(v.value)...), ""
	case traits.Mapper:
		return w.object(b, v)
	case traits.Lister:
		return w.array(b, v)
	}
	return nil, "the expression yields a " + v.Type().TypeName() + ", which JSON does not have"
}

func (w *resultWriter) double(b []byte, f float64) ([]byte, string) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, "the expression yields a number that JSON does not have"
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64), ""
}

func (w *resultWriter) array(b []byte, l traits.Lister) ([]byte, string) {
	if w.depth--; w.depth < 0 {
		return nil, "the expression yields what nests too deep"
	}
	b = append(b, '[')
	for it := l.Iterator(); it.HasNext() == types.True; {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		var problem string
		if b, problem = w.append(b, it.Next()); problem != "" {
			return nil, problem
		}
	}
	w.depth++
	return append(b, ']'), ""
}

func (w *resultWriter) object(b []byte, m traits.Mapper) ([]byte, string) {
	if w.depth--; w.depth < 0 {
		return nil, "the expression yields what nests too deep"
	}
	var names []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		name, ok := it.Next().(types.String)
		if !ok || !utf8.ValidString(string(name)) {
			return nil, "the expression yields a map with a key that is no string"
		}
		names = append(names, string(name))
	}
	slices.SortFunc(names, strings.Compare)
	b = append(b, '{')
	for _, name := range names {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		v, _ := m.Find(types.String(name))
		var problem string
		if b, problem = w.append(append(appendQuoted(b, name), ':'), v); problem != "" {
			return nil, problem
		}
	}
	w.depth++
	return append(b, '}'), ""
}
