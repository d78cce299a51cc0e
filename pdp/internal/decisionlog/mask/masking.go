package mask

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/evidence"
)

// leastSought is the length from which a masked value is sought elsewhere. A shorter value occurs in too many texts that
// are no secrets.
const leastSought = 8

// Masking has a masked request, and masks other values and texts of the same record by the same secrets.
type Masking struct {
	// Request is the request without its secrets.
	Request evaluation.Request
	// Hidden lists the places where Request differs from the request that was sent, in the order of Request. If there
	// are too many, one place stands for all places below it. The list is nil if nothing is masked. It is empty, and not
	// nil, if nothing is masked and the request holds [Prefix]: then that text was sent, and is no mask.
	Hidden []evaluation.Hidden

	gathered
	shown  map[string]bool // names of members on record, made when first needed; see Pointer
	beside *Masking        // the other part of the same record; see With
	people bool            // see ForPeople
}

// gathered is shared by all requests that go on record together.
type gathered struct {
	masker   *Masker
	any      bool                        // a value is masked
	prefixed bool                        // a text that was sent may look like a mask
	values   map[string]evaluation.Value // the JSON values in texts, by text
	find     *finder                     // nil if no secret is sought
}

// Apply masks a request. Its secrets, and the secrets of its obligations, are sought in all of the record.
func (m *Masker) Apply(r evaluation.Request, obligations ...evaluation.Object) *Masking {
	g := m.Gather()
	g.Add(r, obligations...)
	return g.Apply(r)
}

// Gathering reads the secrets of all requests that go on record together, before any request is masked. A secret of one
// request is masked in all of them.
type Gathering struct {
	gathered
	seen    map[string]bool
	secrets []string // texts of masked values
}

// Gather returns a Gathering without secrets.
func (m *Masker) Gather() *Gathering { return &Gathering{gathered: gathered{masker: m}} }

// Add reads the secrets of a request, or of a part of a request, and of its obligations.
func (g *Gathering) Add(r evaluation.Request, obligations ...evaluation.Object) {
	for n, o := range objects(&r) {
		g.object(*o, g.masker.place(n, r.Action.Name))
	}
	for _, o := range obligations {
		g.object(o, nil)
	}
}

// Apply masks a request, or a part of a request. All secrets must have been added.
func (g *Gathering) Apply(r evaluation.Request) *Masking {
	k := &Masking{gathered: g.gathered}
	if len(g.secrets) > 0 {
		k.find = newFinder(g.secrets)
	}
	k.mask(r)
	return k
}

// With masks an item of a batch by the same secrets. k has masked the parts that the item inherits.
func (k *Masking) With(r evaluation.Request) *Masking {
	other := &Masking{gathered: k.gathered, beside: k}
	other.mask(r)
	return other
}

// ForPeople masks the same request for approvers, who must know what they do not see: beside the digest of a masked value
// stands its length or its type. An object or array with the name of a secret keeps its members, each masked by itself;
// an object or array that a pattern addresses stays masked whole.
func (k *Masking) ForPeople(r evaluation.Request) *Masking {
	p := &Masking{gathered: k.gathered, people: true}
	p.mask(r)
	return p
}

// objects returns the four objects of a request that a caller fills freely, in the order of places.
func objects(r *evaluation.Request) [4]*evaluation.Object {
	return [4]*evaluation.Object{&r.Subject.Properties, &r.Action.Properties, &r.Resource.Properties, &r.Context}
}

// places are the paths of the objects that [objects] returns.
var places = [4][]string{{"subject", "properties"}, {"action", "properties"}, {"resource", "properties"}, {"context"}}

// place returns the patterns that apply below the n-th of places, in a request for an action.
func (m *Masker) place(n int, action string) at {
	if strings.HasPrefix(action, "capability.") {
		return m.grants[n]
	}
	return m.roots[n]
}

// Hides reports whether a value is masked at the path of names in the request, below it or above it.
func (k *Masking) Hides(names ...string) bool {
	place := ""
	for _, name := range names {
		place += "/" + escape.Replace(name)
	}
	within := func(a, b string) bool { return a == b || strings.HasPrefix(a, b+"/") }
	return k.beside != nil && k.beside.Hides(names...) || slices.ContainsFunc(k.Hidden, func(h evaluation.Hidden) bool {
		return within(h.At, place) || within(place, h.At)
	})
}

// Evidence returns the tenant's key; see [Masker.Evidence].
func (k *Masking) Evidence(tenant string) *evidence.Key { return k.masker.Evidence(tenant) }

func (g *Gathering) object(o evaluation.Object, a at) {
	for name, v := range o.All {
		g.text(name, nil)
		inner, whole := a.in(name)
		g.value(v, inner, whole || evaluation.SecretName(name))
	}
}

func (g *Gathering) value(v evaluation.Value, a at, masked bool) {
	g.any = g.any || masked
	switch kind := v.Kind(); {
	case kind == evaluation.Map && masked:
		for _, inner := range v.Object().All {
			g.value(inner, nil, true)
		}
	case kind == evaluation.Map:
		g.object(v.Object(), a)
	case kind == evaluation.Array:
		for n, e := range v.Elements {
			inner, whole := a.in(strconv.Itoa(n))
			g.value(e, inner, masked || whole)
		}
	case masked && kind == evaluation.String:
		g.secret(v.Text())
	case masked && kind == evaluation.Number:
		g.secret(v.Text())
		g.secret(number(v)) // as a template writes it
	case kind == evaluation.String:
		g.text(v.Text(), a)
	}
}

// text reads the secrets in a string that is no secret as a whole.
func (g *Gathering) text(text string, a at) {
	g.prefixed = g.prefixed || strings.Contains(text, Prefix)
	switch v, how := a.read(text, g.values); how {
	case asValue:
		if g.values == nil {
			g.values = map[string]evaluation.Value{}
		}
		g.values[text] = v
		g.value(v, a, false)
	case asWhole:
		g.any = true
		g.secret(text)
	}
}

func (g *Gathering) secret(text string) {
	if len(text) < leastSought || g.seen[text] {
		return
	}
	if g.seen == nil { // most requests hold no secret
		g.seen = map[string]bool{}
	}
	g.seen[text] = true
	g.secrets = append(g.secrets, text)
}

// Object masks the properties of an obligation.
func (k *Masking) Object(o evaluation.Object) evaluation.Object {
	o, _ = k.object(o, nil, false)
	return o
}

// Text masks a text. It returns "" if the secrets cannot be taken out.
func (k *Masking) Text(text string) string {
	text, _ = k.text(text, nil)
	return text
}

// below returns how many of the last names of a pointer lie inside a value that is masked whole.
func (m *Masker) below(pointer string) int {
	names := strings.Split(pointer, "/")
	for n := range names {
		names[n] = unescape.Replace(names[n])
	}
	for n, root := range places {
		if len(names) <= len(root)+1 || !slices.Equal(names[1:len(root)+1], root) {
			continue
		}
		for inner, rest := m.roots[n], names[len(root)+1:]; len(rest) > 0; rest = rest[1:] {
			whole := false
			if inner, whole = inner.in(rest[0]); whole || evaluation.SecretName(rest[0]) {
				return len(rest) - 1
			}
		}
	}
	return 0
}

// object masks an object, and returns the places that it masked. secret is set if the name of the object, or of a value
// around it, is the name of a secret.
func (k *Masking) object(o evaluation.Object, a at, secret bool) (evaluation.Object, spot) {
	s := spot{kind: evaluation.Map}
	if !k.any {
		return o, s
	}
	renamed := map[string]bool{}
	made := o.Rewrite(func(m evaluation.Member) (evaluation.Member, bool) {
		inner, whole := a.in(m.Name)
		value, at, kept := k.value(m.Value, inner, whole, secret || evaluation.SecretName(m.Name))
		name, ok := k.text(m.Name, nil)
		switch {
		case !ok:
			s.is = part
		case name == m.Name:
			s.add(name, at)
		default:
			s.is = part
			renamed[name] = true
		}
		return evaluation.Member{Name: name, Value: value}, kept && ok
	})
	// A renamed member may stand where a member with this name was listed. s is a part then, which covers the other one.
	s.below = slices.DeleteFunc(s.below, func(inner spot) bool { return renamed[inner.segment] })
	return made, s
}

// value masks a value, and returns the places that it masked. masked is set if a pattern addresses the value, and secret
// as for object. If ok is false, the value must be left out.
func (k *Masking) value(v evaluation.Value, a at, masked, secret bool) (_ evaluation.Value, _ spot, ok bool) {
	switch kind := v.Kind(); {
	case kind == evaluation.Null:
		return v, spot{}, true
	case masked, secret && !(k.people && (kind == evaluation.Map || kind == evaluation.Array)):
		return k.whole(v)
	case kind == evaluation.Map:
		o, s := k.object(v.Object(), a, secret)
		return o.Value(), s, true
	case kind == evaluation.Array:
		s := spot{kind: kind}
		made := v.RewriteElements(func(n int, e evaluation.Value) (evaluation.Value, bool) {
			segment := strconv.Itoa(n)
			inner, whole := a.in(segment)
			made, at, kept := k.value(e, inner, whole, secret)
			s.add(segment, at)
			return made, kept
		})
		return made, s, true
	case kind == evaluation.Number && (k.found(v.Text()) || k.found(number(v))):
		return k.whole(v)
	case kind == evaluation.String:
		text, ok := k.text(v.Text(), a)
		if ok && text == v.Text() {
			return v, spot{}, true
		}
		made, err := evaluation.Text(text)
		if !ok || err != nil {
			return v, spot{kind: kind, is: removed}, false
		}
		is := part
		if len(text) == len(Prefix)+digestLength && strings.HasPrefix(text, Prefix) {
			is = whole
		}
		return made, spot{kind: kind, is: is}, true
	}
	return v, spot{}, true
}

// whole replaces a value by its digest.
func (k *Masking) whole(v evaluation.Value) (evaluation.Value, spot, bool) {
	digest := k.masker.digest(appendForm(nil, v))
	text := digest
	if k.people {
		says := v.Kind().TypeName()
		if v.Kind() == evaluation.String {
			says = fmt.Sprintf("%d bytes", len(v.Text()))
		}
		if text = "hidden: " + says + " (" + digest + ")"; k.found(text) {
			text = digest
		}
	}
	made, err := evaluation.Text(text)
	if err != nil || k.found(digest) {
		return made, spot{kind: v.Kind(), is: removed}, false
	}
	return made, spot{kind: v.Kind(), is: whole}, true
}

func (k *Masking) found(text string) bool { return k.find != nil && len(k.find.spans(text)) > 0 }

// text masks a text at a place. A caller can choose a secret that occurs again in the digest that replaces it: then the
// whole text is masked, or ok is false and the text must be left out.
func (k *Masking) text(text string, a at) (_ string, ok bool) {
	switch v, how := a.read(text, k.values); how {
	case asValue:
		within := Masking{gathered: k.gathered, people: k.people}
		within.any = true // the text may have secrets that no Gathering has read
		made, _, ok := within.value(v, a, false, false)
		if !ok {
			return "", false
		}
		if !made.Equal(v) {
			written, err := made.MarshalJSON()
			if err != nil {
				return "", false
			}
			text = string(written)
		}
	case asWhole:
		digest := k.masker.digestOfText(text)
		return digest, !k.found(digest)
	}
	if k.find == nil {
		return text, true
	}
	spans := k.find.spans(text)
	if len(spans) == 0 {
		return text, true
	}
	if masked := k.masker.replace(text, spans); !k.found(masked) {
		return masked, true
	}
	if whole := k.masker.digestOfText(text); !k.found(whole) {
		return whole, true
	}
	return "", false
}
