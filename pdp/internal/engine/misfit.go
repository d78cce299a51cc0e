package engine

import (
	"math"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// describe describes a fault: what the schema declares there, what was sent, and what to send. It repeats no value.
func (m *mismatches) describe(f *misfit, of string) string {
	if f.Want == nil {
		return "the schema requires " + of + f.name + ", which was not sent" + m.sentFor(f.At[0], f.got.Object(), f.members)
	}
	return "the schema declares " + of + f.name + " as " + f.Want.String() + "; " + m.sent(f)
}

// sent says what was sent where it does not fit, and what to send.
func (m *mismatches) sent(f *misfit) string {
	switch v, form := f.got, f.Want.Form; {
	case v.Kind() == evaluation.Number && form == bundle.ShapeLong:
		if beyond(v, 1<<63) {
			return "a number beyond 64 bits was sent"
		}
		return "a number that is not an integer was sent; send an integer, or declare it as decimal in schema.cedarschema"
	case v.Kind() == evaluation.Number && form == bundle.ShapeDecimal:
		if beyond(v, (1<<63)/1e4) {
			return "a number beyond the range of decimal was sent"
		}
		return "a number with more than four digits after the point was sent; send four at the most"
	case v.Kind() == evaluation.String && form == bundle.ShapeEntity && f.Want.Entity == bundle.AnyEntity:
		return "a string was sent, which has no type; send " + m.inJSON(f.Want)
	case v.Kind() == evaluation.String && f.Want.Enum != nil:
		return "the string that was sent is none of its ids" + m.near(v.Text(), f.Want.IDs())
	case v.Kind() == evaluation.String && form >= bundle.ShapeEntity:
		return "the string that was sent is none; send " + m.inJSON(f.Want)
	case v.Kind() == evaluation.Map && form == bundle.ShapeEntity:
		return m.sentReference(v.Object(), f.Want)
	case v.Kind() == evaluation.Array && form == bundle.ShapeSet:
		return tooAlike
	}
	return kindNames[f.got.Kind()] + " was sent; send " + m.inJSON(f.Want)
}

// sentReference says why an object is no reference of the declared type; see [Converter.reference].
func (m *mismatches) sentReference(o evaluation.Object, want *bundle.Shape) string {
	typ, _ := o.Get("type")
	id, _ := o.Get("id")
	switch name, ok := m.b.Config.EntityType(typ.Text()); {
	case o.Len() != 2 || typ.Kind() != evaluation.String || id.Kind() != evaluation.String:
		return "the object that was sent names none; send " + m.inJSON(want)
	case !ok || want.Entity != bundle.AnyEntity && name != want.Entity:
		return "the object that was sent has another type; send " + m.inJSON(want)
	}
	return "the id that was sent is none of its ids" + m.near(id.Text(), want.IDs())
}

// inJSON says how a request writes a value of a declared type.
func (m *mismatches) inJSON(s *bundle.Shape) string {
	switch wire, ok := m.b.Config.WireType(s.Entity); {
	case s.Form != bundle.ShapeEntity:
		return s.InJSON()
	case s.Entity == bundle.AnyEntity:
		return `an object with "type" and "id" alone`
	case !ok:
		return "its id as a string"
	default:
		return `its id as a string, or an object with "type": ` + bundle.Quote(wire) + ` and "id" alone`
	}
}

const tooAlike = "its elements take too long to be told apart"

var kindNames = map[evaluation.Kind]string{
	evaluation.Null:   "null",
	evaluation.Bool:   "a boolean",
	evaluation.Number: "a number",
	evaluation.String: "a string",
	evaluation.Array:  "an array",
	evaluation.Map:    "an object",
}

// unusable finds the first part of a value that Cedar cannot express. It returns where that part
// is, and why Cedar cannot express it. If why is "", Cedar can express all of the value.
func unusable(v evaluation.Value) (at []string, why string) {
	in := func(token string, e evaluation.Value) bool {
		if at, why = unusable(e); why != "" {
			at = append([]string{token}, at...)
		}
		return why != ""
	}
	switch v.Kind() {
	case evaluation.Null:
		return nil, "null stands in an array, and Cedar has no null; leave it out"
	case evaluation.Number:
		if _, ok := v.Scaled(0); !ok {
			return nil, reasonUnusable(v)
		}
	case evaluation.Array:
		for n, e := range v.Elements {
			if in(strconv.Itoa(n), e) {
				return at, why
			}
		}
		if _, ok := Untyped(v); !ok {
			return nil, tooAlike
		}
	case evaluation.Map:
		for name, e := range v.Object().Members {
			if in(name, e) {
				return at, why
			}
		}
	}
	return nil, ""
}

// reasonUnusable says why a number that is no integer of 64 bits cannot be used: it is too large, or a fraction.
func reasonUnusable(v evaluation.Value) string {
	if beyond(v, 1<<63) {
		return "beyond 64 bits; send a smaller integer, or a string"
	}
	return "not an integer; send an integer, or declare it as decimal in schema.cedarschema"
}

// beyond reports whether a number is too large, one way or the other. The number fits into nothing, so one that is
// about as large as the bound is.
func beyond(v evaluation.Value, bound float64) bool {
	f, err := strconv.ParseFloat(v.Text(), 64)
	return err != nil || math.Abs(f) >= bound
}

// maxNamed bounds how much of a name from the request an answer repeats.
const maxNamed = 100

// quoteShortened quotes a name from the request, and shortens it if it is too long.
func quoteShortened(name string) string {
	if len(name) <= maxNamed {
		return bundle.Quote(name)
	}
	return bundle.Quote(strings.ToValidUTF8(name[:maxNamed], "")) + "…"
}
