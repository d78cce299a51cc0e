package mask

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/evidence"
)

// leastSought is the least length of a masked value that is sought elsewhere. A shorter one is a part of too many texts
// that are no secrets.
const leastSought = 8

// Masking is a masked request. It masks other values and texts of the same record by the same secrets.
type Masking struct {
	// Request is the request without its secrets.
	Request evaluation.Request
	// Hidden are the places where Request is not the request that was sent, in its order. If there are too many, one
	// place stands for all that are masked below it. The list is nil if nothing is masked. It is empty, and not nil, if
	// nothing is masked and the request holds [Prefix]: then that text is no mask, and was sent.
	Hidden []evaluation.Hidden

	gathered
	shown  map[string]bool // names of members on record, made when first needed; see Pointer
	beside *Masking        // of another part of the same record; see With
	people bool            // see ForPeople
}

// gathered is what all requests that go on record together share.
type gathered struct {
	masker   *Masker
	any      bool                        // anything is masked at all
	prefixed bool                        // a text that was sent may look like a mask
	values   map[string]evaluation.Value // of texts that hold JSON
	find     *finder                     // nil if there is nothing to seek
}

// Apply masks a request by its secrets and those of the obligations that go on record with it.
func (m *Masker) Apply(r evaluation.Request, obligations ...evaluation.Object) *Masking {
	g := m.Gather()
	g.Add(r, obligations...)
	return g.Apply(r)
}

// Gathering reads the secrets of all requests that go on record together, before any of them is masked. Each secret
// counts in all of them, and is read and sought once.
type Gathering struct{ collector }

// Gather begins to read secrets.
func (m *Masker) Gather() *Gathering {
	return &Gathering{collector{gathered: gathered{masker: m}, seen: map[string]bool{}}}
}

// Add reads the secrets of a request, or of a part of one, and of its obligations.
func (g *Gathering) Add(r evaluation.Request, obligations ...evaluation.Object) {
	for n, o := range objects(&r) {
		g.object(*o, g.masker.place(n, r.Action.Name))
	}
	for _, o := range obligations {
		g.object(o, nil)
	}
}

// Apply masks a request, or a part of one. All secrets must have been read before.
func (g *Gathering) Apply(r evaluation.Request) *Masking {
	k := &Masking{gathered: g.gathered}
	if len(g.secrets) > 0 {
		k.find = newFinder(g.secrets)
	}
	k.mask(r)
	return k
}

// With masks another request by the same secrets. k's request is a part of that request, recorded elsewhere.
func (k *Masking) With(r evaluation.Request) *Masking {
	other := &Masking{gathered: k.gathered, beside: k}
	other.mask(r)
	return other
}

// ForPeople masks the same request for approvers, who must know what they do not see: a masked value says how long it is,
// or of which type, besides its digest. An object or array that is secret by its name has its members in it, each masked by
// itself; one that a pattern addresses stays masked whole.
func (k *Masking) ForPeople(r evaluation.Request) *Masking {
	p := &Masking{gathered: k.gathered, people: true}
	p.mask(r)
	return p
}

// objects are the four objects of a request that a caller fills freely, in the order of places.
func objects(r *evaluation.Request) [4]*evaluation.Object {
	return [4]*evaluation.Object{&r.Subject.Properties, &r.Action.Properties, &r.Resource.Properties, &r.Context}
}

// places are the paths of the objects that [objects] returns.
var places = [4][]string{{"subject", "properties"}, {"action", "properties"}, {"resource", "properties"}, {"context"}}

// place returns the patterns as they apply below the n-th of places, in a request for an action of that name.
func (m *Masker) place(n int, action string) at {
	if strings.HasPrefix(action, "capability.") {
		return at(m.grants).into(places[n]...)
	}
	return at(m.patterns).into(places[n]...)
}

// Hides reports whether anything is masked where names lead to in the request, below that or around it.
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

// Evidence returns the tenant's key of the masker; see [Masker.Evidence].
func (k *Masking) Evidence(tenant string) *evidence.Key { return k.masker.Evidence(tenant) }

// collector gathers the texts of masked values.
type collector struct {
	gathered
	seen    map[string]bool
	secrets []string
}

func (c *collector) object(o evaluation.Object, a at) {
	for name, v := range o.All {
		c.text(name, nil)
		inner, whole := a.in(name)
		c.value(v, inner, whole || evaluation.SecretName(name))
	}
}

func (c *collector) value(v evaluation.Value, a at, masked bool) {
	c.any = c.any || masked
	switch kind := v.Kind(); {
	case kind == evaluation.Map && masked:
		for _, inner := range v.Object().All {
			c.value(inner, nil, true)
		}
	case kind == evaluation.Map:
		c.object(v.Object(), a)
	case kind == evaluation.Array:
		for n, e := range v.Elements {
			inner, whole := a.in(strconv.Itoa(n))
			c.value(e, inner, masked || whole)
		}
	case masked && kind == evaluation.String:
		c.secret(v.Text())
	case masked && kind == evaluation.Number:
		c.secret(v.Text())
		c.secret(number(v)) // as a template writes it
	case kind == evaluation.String:
		c.text(v.Text(), a)
	}
}

// text reads the secrets in a string that is itself no secret.
func (c *collector) text(text string, a at) {
	c.prefixed = c.prefixed || strings.Contains(text, Prefix)
	switch v, how := a.read(text, c.values); how {
	case asValue:
		if c.values == nil {
			c.values = map[string]evaluation.Value{}
		}
		c.values[text] = v
		c.value(v, a, false)
	case asWhole:
		c.any = true
		c.secret(text)
	}
}

func (c *collector) secret(text string) {
	if len(text) >= leastSought && !c.seen[text] {
		c.seen[text] = true
		c.secrets = append(c.secrets, text)
	}
}

// Object is an obligation's properties without secrets.
func (k *Masking) Object(o evaluation.Object) evaluation.Object {
	o, _ = k.object(o, nil, false)
	return o
}

// Text is a text without secrets. It is "" if the secrets cannot be taken out.
func (k *Masking) Text(text string) string {
	text, _ = k.text(text)
	return text
}

// below is how many of a pointer's last names lie inside a value that is masked whole.
func (m *Masker) below(place string) int {
	names := strings.Split(place, "/")
	for n := range names {
		names[n] = unescape.Replace(names[n])
	}
	for n, of := range places {
		if len(names) <= len(of)+1 || !slices.Equal(names[1:len(of)+1], of) {
			continue
		}
		for inner, rest := m.place(n, ""), names[len(of)+1:]; len(rest) > 0; rest = rest[1:] {
			whole := false
			if inner, whole = inner.in(rest[0]); whole || evaluation.SecretName(rest[0]) {
				return len(rest) - 1
			}
		}
	}
	return 0
}

// object is an object without secrets, and where they were. Secret is set if its name, or that of what it is in, says that
// it is one.
func (k *Masking) object(o evaluation.Object, a at, secret bool) (evaluation.Object, spot) {
	s := spot{kind: evaluation.Map}
	if !k.any {
		return o, s
	}
	var renamed []string
	made := o.Rewrite(func(m evaluation.Member) (evaluation.Member, bool) {
		inner, whole := a.in(m.Name)
		value, at, kept := k.value(m.Value, inner, whole, secret || evaluation.SecretName(m.Name))
		name, ok := k.text(m.Name)
		switch {
		case !ok:
			s.is = part
		case name == m.Name:
			s.add(name, at)
		default:
			s.is = part
			renamed = append(renamed, name)
		}
		return evaluation.Member{Name: name, Value: value}, kept && ok
	})
	s.forget(renamed)
	return made, s
}

// value is a value without secrets, and where they were. Masked is set if a pattern addresses it, and secret as for object.
// If ok is false, the value must be left out.
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
		text, ok := k.textAt(v.Text(), a)
		if ok && text == v.Text() {
			return v, spot{}, true
		}
		made, err := evaluation.Text(text)
		if !ok || err != nil {
			return v, spot{kind: kind, is: removed}, false
		}
		return made, spotOfText(text), true
	}
	return v, spot{}, true
}

// whole is the digest in a value's place.
func (k *Masking) whole(v evaluation.Value) (evaluation.Value, spot, bool) {
	digest := k.masker.digest(appendForm(nil, v))
	text := digest
	if k.people {
		if text = says(v) + " (" + digest + ")"; k.found(text) {
			text = digest
		}
	}
	made, err := evaluation.Text(text)
	if err != nil || k.found(digest) {
		return made, spot{kind: v.Kind(), is: removed}, false
	}
	return made, spot{kind: v.Kind(), is: whole}, true
}

// says returns the words that approvers see for a value that is masked.
func says(v evaluation.Value) string {
	if v.Kind() == evaluation.String {
		return fmt.Sprintf("hidden: %d bytes", len(v.Text()))
	}
	return "hidden: " + v.Kind().TypeName()
}

func (k *Masking) found(text string) bool { return k.find != nil && len(k.find.spans(text)) > 0 }

// text is a text without secrets.
func (k *Masking) text(text string) (_ string, ok bool) { return k.textAt(text, nil) }

func (k *Masking) textAt(text string, a at) (_ string, ok bool) {
	switch v, how := a.read(text, k.values); how {
	case asValue:
		within := Masking{gathered: k.gathered, people: k.people}
		within.any = true // the text may have secrets that were never read
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
	return k.plainText(text)
}

// plainText takes the secrets out of a text that is no JSON. A caller can choose a secret that occurs again in the
// digest in its place. Then the whole text is masked, or left out.
func (k *Masking) plainText(text string) (_ string, ok bool) {
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
