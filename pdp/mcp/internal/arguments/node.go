package arguments

import "policy-service/evaluation"

// node is a schema within an inputSchema, as it is checked: what a keyword lists is in an order that does not change.
type node struct {
	never bool    // the schema false
	kinds kinds   // 0 is all
	exact *string // the key of const
	only  keys    // of enum, nil if there is none
	all   []*node // references and allOf
	any   []*node // nil if there is none, as with one
	one   []*node
	not   *node
	when  *when
	texts *texts
	size  *numbers
	items *items
	of    *members
}

type keys map[string]bool

// when is if with then and else, of which each may be nil.
type when struct{ is, then, otherwise *node }

// span is how many there may be, -1 without a bound.
type span struct{ least, most int }

type texts struct {
	length  span
	pattern *pattern // nil if there is none
}

// numbers are the bounds of a number, of which each may be nil.
type numbers struct{ least, most, above, below, multiple *bound }

// bound is a number as the schema writes it.
type bound struct {
	number
	text string
}

// items are the rules for an array. Nodes may be nil.
type items struct {
	count    span
	unique   bool
	prefix   []*node
	rest     *node
	contains *node
	matches  span
	// marks says that elements which contains matches count as evaluated.
	marks       bool
	unevaluated *node
}

// members are the rules for an object. Nodes may be nil.
type members struct {
	count       span
	required    []string
	properties  map[string]*node
	patterns    []patterned
	additional  *node
	names       *node
	needs       []needs
	dependent   []dependent
	unevaluated *node
}

type patterned struct {
	pattern *pattern
	node    *node
}

// needs are the members that must stand beside one.
type needs struct {
	member string
	others []string
}

// dependent is what an object must fit if it has a member.
type dependent struct {
	member string
	node   *node
}

// kinds is a set of the types of JSON Schema.
type kinds uint8

const (
	isNull kinds = 1 << iota
	isBoolean
	isInteger
	isNumber
	isString
	isArray
	isObject
)

var kindNames = []struct {
	kind kinds
	name string
}{{isNull, "null"}, {isBoolean, "boolean"}, {isInteger, "integer"}, {isNumber, "number"}, {isString, "string"}, {isArray, "array"}, {isObject, "object"}}

// kindOf is the type of a value, and integer besides if it is that.
func kindOf(v evaluation.Value) kinds {
	switch v.Kind() {
	case evaluation.Null:
		return isNull
	case evaluation.Bool:
		return isBoolean
	case evaluation.String:
		return isString
	case evaluation.Array:
		return isArray
	case evaluation.Map:
		return isObject
	}
	if n, ok := readNumber(v.Text()); ok && n.isInteger() {
		return isNumber | isInteger
	}
	return isNumber
}

// inPlace yields the nodes that are held against the same value as n.
func (n *node) inPlace(yield func(*node) bool) {
	lists := [][]*node{n.all, n.any, n.one, {n.not}}
	if n.when != nil {
		lists = append(lists, []*node{n.when.is, n.when.then, n.when.otherwise})
	}
	if n.of != nil {
		for _, d := range n.of.dependent {
			lists = append(lists, []*node{d.node})
		}
	}
	for _, list := range lists {
		for _, m := range list {
			if m != nil && !yield(m) {
				return
			}
		}
	}
}
