package capability

import (
	"fmt"
	"slices"
	"strconv"

	"policy-service/evaluation"
)

// reader takes members out of what was parsed, and keeps the first thing that is wrong with them.
type reader struct{ err *evaluation.Error }

func (r *reader) want(ok bool, detail string, at ...string) bool {
	if !ok && r.err == nil {
		r.err = evaluation.Malformed(detail, "", at...)
	}
	return ok
}

// in is the path of a member of what stands at a path.
func in(at []string, name string) []string { return append(slices.Clip(at), name) }

// only wants no members but those of the names. To pass over another one could be to pass over a restriction.
func (r *reader) only(o evaluation.Object, at []string, names ...string) {
	for name := range o.All {
		if !slices.Contains(names, name) {
			r.want(false, fmt.Sprintf("a member that is not known here; the known ones are %q", names), in(at, name)...)
			return
		}
	}
}

// text is a member that is a string of 1 to most bytes, and may be left out if it is optional.
func (r *reader) text(o evaluation.Object, most int, optional bool, at ...string) string {
	v, there := o.Get(at[len(at)-1])
	if !there && optional {
		return ""
	}
	ok := v.Kind() == evaluation.String && 1 <= len(v.Text()) && len(v.Text()) <= most
	r.want(ok, fmt.Sprintf("not a string of 1 to %d bytes", most), at...)
	return v.Text()
}

// whole is a member that is a whole number within bounds; 0 if it is optional and left out.
func (r *reader) whole(o evaluation.Object, least, most int64, optional bool, at ...string) int64 {
	v, there := o.Get(at[len(at)-1])
	if !there && optional {
		return 0
	}
	n, ok := v.Scaled(0)
	r.want(ok && least <= n && n <= most, fmt.Sprintf("not a whole number from %d to %d", least, most), at...)
	return n
}

func (r *reader) object(o evaluation.Object, optional bool, at ...string) evaluation.Object {
	v, there := o.Get(at[len(at)-1])
	r.want(v.Kind() == evaluation.Map || optional && !there, "not an object", at...)
	return v.Object()
}

// list is a member that is an array of 1 to most values, at their paths.
func (r *reader) list(o evaluation.Object, most int, at ...string) func(yield func([]string, evaluation.Value) bool) {
	v, _ := o.Get(at[len(at)-1])
	ok := v.Kind() == evaluation.Array && 1 <= v.Len() && v.Len() <= most
	if !r.want(ok, fmt.Sprintf("not an array of 1 to %d elements", most), at...) {
		v = evaluation.Value{}
	}
	return func(yield func([]string, evaluation.Value) bool) {
		for n, e := range v.Elements {
			if !yield(in(at, strconv.Itoa(n)), e) {
				return
			}
		}
	}
}

// ref is a member {"type", "id"}.
func (r *reader) ref(o evaluation.Object, at ...string) evaluation.Ref {
	o = r.object(o, false, at...)
	return evaluation.Ref{
		Type: r.text(o, maxName, false, in(at, "type")...),
		ID:   r.text(o, maxURL, false, in(at, "id")...), // of SPIFFE, too
	}
}

// arguments is the member "arguments": nil where it is left out, which restricts nothing.
func (r *reader) arguments(o evaluation.Object, at ...string) Arguments {
	if _, there := o.Lookup("arguments"); !there {
		return nil
	}
	at = in(at, "arguments")
	o = r.object(o, false, at...)
	all := Arguments{}
	for name, v := range o.All {
		c := r.constraint(v, in(at, name)...)
		r.want(name != "" && len(name) <= maxName, fmt.Sprintf("the name of an argument has 1 to %d bytes", maxName), in(at, name)...)
		r.want(name != others || c.kind == wildcard, `"*" stands for all other arguments, and takes the constraint wildcard alone`, in(at, name)...)
		all[name] = c
	}
	r.want(len(all) <= MaxArguments, fmt.Sprintf("more than %d arguments", MaxArguments), at...)
	return all
}
