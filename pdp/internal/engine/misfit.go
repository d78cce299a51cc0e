package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// describe describes a fault: the declared type, the kind of the sent value, and the form to send. It repeats no value.
func (d describer) describe(f *misfit, of string) string {
	switch {
	case f.missing:
		return "the schema requires " + of + f.name + ", which was not sent" + d.sentFor(f.At[0], f.got.Object(), f.members)
	case f.Want == nil:
		return f.inexpressible()
	}
	return "the schema declares " + of + f.name + " as " + f.Want.String() + "; " + d.sent(f)
}

// sent describes the value that does not fit, and the form to send.
func (d describer) sent(f *misfit) string {
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
		return "a string was sent, which has no type; send " + d.inJSON(f.Want)
	case v.Kind() == evaluation.String && f.Want.Enum != nil:
		return "the string that was sent is none of its ids" + d.near(v.Text(), f.Want.IDs())
	case v.Kind() == evaluation.String && form >= bundle.ShapeEntity:
		return "the string that was sent is none; send " + d.inJSON(f.Want)
	case v.Kind() == evaluation.Map && form == bundle.ShapeEntity:
		return d.sentReference(v.Object(), f.Want)
	case v.Kind() == evaluation.Array && form == bundle.ShapeSet:
		return f.notHeld()
	}
	return kindNames[f.got.Kind()] + " was sent; send " + d.inJSON(f.Want)
}

// sentReference describes why an object is no reference of the declared type; see [Converter.reference].
func (d describer) sentReference(o evaluation.Object, want *bundle.Shape) string {
	typ, _ := o.Get("type")
	id, _ := o.Get("id")
	switch name, ok := d.in.Bundle.Config.EntityType(typ.Text()); {
	case o.Len() != 2 || typ.Kind() != evaluation.String || id.Kind() != evaluation.String:
		return "the object that was sent names none; send " + d.inJSON(want)
	case !ok || want.Entity != bundle.AnyEntity && name != want.Entity:
		return "the object that was sent has another type; send " + d.inJSON(want)
	}
	return "the id that was sent is none of its ids" + d.near(id.Text(), want.IDs())
}

// inJSON describes how a request writes a value of a declared type.
func (d describer) inJSON(s *bundle.Shape) string {
	switch wire, ok := d.in.Bundle.Config.WireType(s.Entity); {
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

// notHeld describes an array that Cedar cannot hold as a set.
func (f *misfit) notHeld() string {
	switch {
	case f.arrays > bundle.MostArrays:
		return fmt.Sprintf("arrays nest more than %d deep", bundle.MostArrays)
	case f.got.Len() > bundle.MostElements:
		return fmt.Sprintf("the array has more than %d elements", bundle.MostElements)
	case !holds(f.got, f.arrays):
		return fmt.Sprintf("the array holds arrays or objects and has more than %d elements", bundle.MostNested)
	}
	return "its elements take too long to be told apart"
}

var kindNames = map[evaluation.Kind]string{
	evaluation.Null:   "null",
	evaluation.Bool:   "a boolean",
	evaluation.Number: "a number",
	evaluation.String: "a string",
	evaluation.Array:  "an array",
	evaluation.Map:    "an object",
}

// inexpressible describes a value that Cedar does not have, while no schema types it.
func (f *misfit) inexpressible() string {
	switch v := f.got; {
	case v.Kind() == evaluation.Null:
		return "null stands in an array, and Cedar has no null; leave it out"
	case v.Kind() == evaluation.Array:
		return f.notHeld()
	case beyond(v, 1<<63):
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
