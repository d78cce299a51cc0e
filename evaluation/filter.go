package evaluation

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Filters is the body of a filter request: which rows of an application's own tables would be permitted? The answer has a
// condition for each question.
type Filters struct {
	Questions []FilterQuestion
	// Dialect is the SQL of the conditions: postgres or sqlite.
	Dialect string
	// FirstParameter is the number of the first parameter, 1 unless the body has another.
	FirstParameter int
	// Size is that of the body in bytes.
	Size int
}

// FilterQuestion is a question about the rows of one type. Its resource has neither id nor properties: those are the row's.
type FilterQuestion struct {
	Item
	// Alias is the name that the application's query gives the table, "" if it is the table's own.
	Alias string
}

// MaxFirstParameter is the greatest number that the first parameter can have. PostgreSQL takes 65,535 parameters.
const MaxFirstParameter = 60_000

// DecodeFilter reads the body of a filter request. A body without filters is one itself; otherwise its members are shared as
// those of a batch. A member that is not known is refused: a query would go on without what it asks for. A dialect that is
// given beside the body is that of a body that has none.
func DecodeFilter(body []byte, tenant, dialect string, limits Limits) (Filters, error) {
	const list = "filters"
	o, reserved, err := parseBody(body, limits, list, inBody)
	if err != nil {
		return Filters{}, err
	}
	var r reader
	f := Filters{Dialect: dialect, FirstParameter: 1, Size: len(body)}
	if dialect == "" || has(o, "dialect") {
		f.Dialect = r.text(o, "dialect")
	}
	r.want(f.Dialect == "postgres" || f.Dialect == "sqlite", "neither postgres nor sqlite", "dialect")
	r.want(dialect == "" || f.Dialect == dialect, "another dialect than the one given beside the body", "dialect")
	if first, ok := r.member(o, []string{"first_parameter"}, false, Number, "a number"); ok {
		n, whole := first.Scaled(0)
		r.want(whole && 1 <= n && n <= MaxFirstParameter, "not a whole number from 1 to 60,000", "first_parameter")
		f.FirstParameter = int(n)
	}
	d := defaults{
		tenant:   cmp.Or(tenant, DefaultTenant),
		resource: []string{"type"},
		reserved: reserved,
		objects:  map[string]Object{},
		illegal:  map[string]*Error{},
		draft:    draftOf(AuthZEN, Object{}), // no question has the member that makes it one of October's
	}
	shared := r.filterMembers(o, nil, list, "dialect", "first_parameter")
	ask := func(v Value, alias string, at ...string) {
		item := d.item(v, at...)
		if r.err == nil {
			r.err = item.Err
		}
		for name := range item.Request.Context.Members {
			if r.err == nil && Protocol(name) && name != personMember {
				r.err = item.InBody(Malformed("a filter declares no obligation, and shows no approval, capability or reason", "leave it out", "context", name))
			}
		}
		f.Questions = append(f.Questions, FilterQuestion{item, alias})
	}
	items, several := r.member(o, []string{list}, false, Array, "an array of filters")
	if several {
		r.want(items.Len() > 0, "empty; there is nothing to ask", list)
		for _, name := range tuple {
			d.objects[name] = r.optional(o, name)
		}
	} else {
		ask(o.Value(), shared)
	}
	for n, v := range items.Elements {
		at := []string{list, strconv.Itoa(n)}
		ask(v, cmp.Or(r.filterMembers(v.Object(), at), shared), at...)
	}
	if r.err != nil {
		return Filters{}, r.err
	}
	return f, nil
}

// filterMembers checks the members of a filter at a path, or of what filters share, and returns the alias. Only some members
// more may stand there.
func (r *reader) filterMembers(o Object, at []string, more ...string) (alias string) {
	in := func(names ...string) []string { return append(slices.Clip(at), names...) }
	for name := range o.Members {
		r.want(name == "alias" || name == "options" || slices.Contains(tuple[:], name) || slices.Contains(more, name), "no member of a filter", in(name)...)
	}
	for name := range r.optional(o, in("options")...).Members {
		r.want(false, "a filter takes no options", in("options", name)...)
	}
	for name := range r.optional(o, in("resource")...).Members {
		r.want(name == "type", "a filter is about all resources of a type, and has their ids and properties from rows", in("resource", name)...)
	}
	if v, ok := r.member(o, in("alias"), false, String, "a string"); ok {
		alias = v.Text()
		r.want(IsSQLName(alias), "not a letter or underscore with at most 62 letters, digits and underscores behind it, or it begins with _pf", in("alias")...)
	}
	return alias
}

// IsSQLName reports whether a filter can have s as the name of a table, a column or an alias: a letter or underscore, then up
// to 62 letters, digits and underscores. Names that begin with _pf are those of tables within a condition.
func IsSQLName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 63 && !strings.HasPrefix(strings.ToLower(s), "_pf")
}
