package filter

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// column is an expression for the value of a column in a row.
type column struct {
	name    string // qualified and quoted
	typ     bundle.ColumnType
	dialect Dialect
	strict  bool // the column is what its type says: see [bundle.Mapping]
}

// cast returns what stands before and after a parameter.
func (d Dialect) cast(p *parameter) (before, after string) {
	if d == SQLite {
		if p.list {
			return "json_each(", ")"
		}
		return "CAST(", " AS " + p.cast + ")"
	}
	if p.list {
		return "", "::" + p.cast + "[]"
	}
	return "", "::" + p.cast
}

func (d Dialect) placeholder(n int) string {
	if d == SQLite {
		return "?" + strconv.Itoa(n)
	}
	return "$" + strconv.Itoa(n)
}

// sqlType returns what parameters that are compared with the column are cast to.
func (c column) sqlType() string {
	numeric := c.typ == bundle.BigintColumn || c.typ == bundle.MillisColumn || c.typ == bundle.BooleanColumn
	switch {
	case c.dialect == SQLite && numeric:
		return "INTEGER"
	case c.dialect == SQLite:
		return "TEXT"
	case c.typ == bundle.MillisColumn:
		return string(bundle.BigintColumn)
	}
	return string(c.typ)
}

// storage returns what SQLite's typeof says of the column's values.
func (c column) storage() string { return "'" + strings.ToLower(c.sqlType()) + "'" }

func (c column) isPresent() *condition {
	made := when(c.name + " IS NOT NULL").defining(c.name)
	made.present = true
	return made
}

func (c column) isAbsent() *condition { return when(c.name + " IS NULL") }

// exact returns the text of the column as its bytes are compared: a column of text may be one of citext or char(8), or have a
// collation that takes different texts for equal ones.
func (c column) exact() string {
	switch {
	case c.dialect == SQLite && c.typ == bundle.BigintColumn:
		return "CAST(" + c.name + " AS TEXT)"
	case c.dialect == SQLite:
		return c.name + " COLLATE BINARY"
	case c.typ != bundle.TextColumn:
		return c.name + "::text"
	case c.strict:
		return c.name
	}
	return "concat(" + c.name + `) COLLATE "C"`
}

// likely writes a condition that nearly every row meets which meets the one before it. PostgreSQL takes an inequality for such a
// one, and would else leave the index that serves the query.
func likely(condition string) string { return "CASE WHEN " + condition + " THEN 0 ELSE 1 END <> 1" }

// doubted reports whether PostgreSQL's own comparison of the column may take different texts for equal ones.
func (c column) doubted() bool {
	return c.dialect == Postgres && c.typ == bundle.TextColumn && !c.strict
}

// uuids are the texts that PostgreSQL reads back of a uuid.
var uuids = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// holds reports whether a text is that of a value that the column can have. What it cannot have is equal to no value of it.
func (c column) holds(text string) bool {
	switch c.typ {
	case bundle.BigintColumn, bundle.MillisColumn:
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && strconv.FormatInt(n, 10) == text
	case bundle.UUIDColumn:
		if c.dialect == Postgres {
			return uuids.MatchString(text)
		}
	}
	return utf8.ValidString(text) && !strings.Contains(text, "\x00")
}

func (c column) parameter(text string) *parameter { return &parameter{cast: c.sqlType(), text: text} }

func (c column) list(texts []string) *parameter {
	return &parameter{cast: c.sqlType(), texts: texts, list: true}
}

// compared returns the column as it is compared with a parameter.
func (c column) compared() string {
	switch {
	case c.dialect == SQLite && c.sqlType() == "TEXT":
		return c.name + " COLLATE BINARY"
	case c.doubted():
		return c.name + "::text"
	}
	return c.name
}

// is returns the conditions that the column has a value, and that it has another one.
func (c column) is(text string) truth {
	if !c.holds(text) {
		return truth{is: no, not: c.isPresent()}
	}
	p := c.parameter(text)
	if c.doubted() {
		return truth{
			is:  c.exactly(" = ?", p, text),
			not: when(c.name+" IS NOT NULL AND "+c.exact()+" <> ?", p).defining(c.name),
		}
	}
	return truth{
		is:  when(c.compared()+" = ?", p).defining(c.name),
		not: when(c.compared()+" <> ?", p).defining(c.name),
	}
}

// exactly returns the condition that the bytes of the column compare so with a parameter of some texts. An index serves it unless a
// text ends in a blank: PostgreSQL takes the blanks from a char(8) that it compares as a text.
func (c column) exactly(with string, p *parameter, texts ...string) *condition {
	if slices.ContainsFunc(texts, func(text string) bool { return strings.HasSuffix(text, " ") }) {
		return when(c.name+" IS NOT NULL AND "+c.exact()+with, p).defining(c.name)
	}
	return when(c.compared()+with+" AND "+likely(c.exact()+with), p, p).defining(c.name)
}

// isAmong returns the condition that the column has one of some values.
func (c column) isAmong(texts []string) *condition { return c.among(texts).is }

// among returns the conditions that the column has one of some values, and that it has another one.
func (c column) among(texts []string) truth {
	texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !c.holds(text) })
	slices.Sort(texts)
	texts = slices.Compact(texts)
	var t truth
	switch p := c.list(texts); {
	case len(texts) == 0: // both engines find NULL NOT IN () true
		return truth{is: no, not: c.isPresent()}
	case len(texts) == 1:
		t = c.is(texts[0])
	case c.dialect == SQLite:
		in := " (SELECT " + c.elementOfList() + " FROM ?)"
		t = truth{
			is:  when(c.compared()+" IN"+in, p).defining(c.name),
			not: when(c.compared()+" NOT IN"+in, p).defining(c.name),
		}
	case c.doubted():
		t = truth{
			is:  c.exactly(" = ANY(?)", p, texts...),
			not: when(c.name+" IS NOT NULL AND "+c.exact()+" <> ALL(?)", p).defining(c.name),
		}
	default:
		t = truth{
			is:  when(c.compared()+" = ANY(?)", p).defining(c.name),
			not: when(c.compared()+" <> ALL(?)", p).defining(c.name),
		}
	}
	t.is.member = &membership{c, texts}
	return t
}

// elementOfList returns what SQLite reads of an element of a list, which is a text.
func (c column) elementOfList() string {
	if c.sqlType() == "INTEGER" {
		return `CAST("value" AS INTEGER)`
	}
	return `"value"`
}

// equals returns the conditions that two columns have the same value, and that they have different ones.
func (c column) equals(other column) truth {
	left, right := c.name, other.name
	switch {
	case c.typ == bundle.TimestamptzColumn && other.typ == bundle.TimestamptzColumn: // Cedar has milliseconds
		left, right = c.milliseconds(), other.milliseconds()
	case c.isText() || other.isText():
		left, right = c.exact(), other.exact()
		if c.strict && c.typ == bundle.TextColumn && c.dialect == Postgres { // whose columns may have different collations
			left += ` COLLATE "C"`
		}
	}
	there := c.name + " IS NOT NULL AND " + other.name + " IS NOT NULL AND "
	if c.doubted() || other.doubted() { // concat makes "" of NULL
		return truth{
			is:  when(there+left+" = "+right).defining(c.name, other.name),
			not: when(there+left+" <> "+right).defining(c.name, other.name),
		}
	}
	return truth{
		is:  when(left+" = "+right).defining(c.name, other.name),
		not: when(left+" <> "+right).defining(c.name, other.name),
	}
}

func (c column) isText() bool { return c.typ == bundle.TextColumn || c.typ == bundle.UUIDColumn }

func (c column) milliseconds() string { return "date_trunc('milliseconds', " + c.name + ")" }

// isTrue returns the conditions that a column of booleans is true, and that it is false.
func (c column) isTrue() truth {
	if c.dialect == SQLite {
		return truth{is: when(c.name + " = 1").defining(c.name), not: when(c.name + " = 0").defining(c.name)}
	}
	return truth{is: when(c.name).defining(c.name), not: when("NOT " + c.name).defining(c.name)}
}

// What stands for itself in a pattern of either engine.
var (
	likeEscapes = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")
	globEscapes = strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]")
)

// matches returns the conditions that the text of the column matches a pattern, and that it does not. The texts stand between the
// stars of the pattern.
func (c column) matches(texts []string) truth {
	like, escaped, star, end := " LIKE ", likeEscapes, "%", " ESCAPE '!'"
	if c.dialect == SQLite {
		like, escaped, star, end = " GLOB ", globEscapes, "*", ""
	}
	var pattern []string
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			return truth{is: no, not: c.isPresent()}
		}
		pattern = append(pattern, escaped.Replace(text))
	}
	text := c.exact()
	if c.dialect == SQLite {
		text = strings.TrimSuffix(text, " COLLATE BINARY")
	}
	p, present := &parameter{cast: "text", text: strings.Join(pattern, star)}, ""
	if c.doubted() { // concat makes "" of NULL
		present = c.name + " IS NOT NULL AND "
	}
	return truth{
		is:  when(present+text+like+"?"+end, p).defining(c.name),
		not: when(present+text+" NOT"+like+"?"+end, p).defining(c.name),
	}
}

// The range of datetimes that a row can have: the years 1 to 9999, in milliseconds.
const (
	firstMilli = -62135596800000
	lastMilli  = 253402300799999
)

// order returns the conditions that the column compares so with a number, or with the milliseconds of a datetime, and that it does not.
// PostgreSQL keeps microseconds, of which Cedar sees milliseconds: so a value is below a bound if it is below as a whole, and
// above if the next millisecond has begun.
func (c column) order(sign string, bound int64) truth {
	if c.typ == bundle.BigintColumn {
		return truth{is: c.than(sign, bound), not: c.than(opposite[sign], bound)}
	}
	return truth{is: c.thanTime(sign, bound), not: c.thanTime(opposite[sign], bound)}
}

var opposite = map[string]string{"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

func (c column) than(sign string, bound int64) *condition {
	return when(c.name+" "+sign+" ?", c.parameter(strconv.FormatInt(bound, 10))).defining(c.name)
}

func (c column) thanTime(sign string, bound int64) *condition {
	if sign == "<=" || sign == ">" { // as < and >= of the next millisecond
		bound = min(bound, lastMilli) + 1
		sign = map[string]string{"<=": "<", ">": ">="}[sign]
	}
	switch below := sign == "<"; {
	case bound > lastMilli && below, bound <= firstMilli && !below:
		return c.isPresent()
	case bound > lastMilli, bound <= firstMilli:
		return no
	case c.typ == bundle.MillisColumn:
		return c.than(sign, bound)
	}
	return when(c.name+" "+sign+" ?", &parameter{cast: "timestamptz", text: timeText(bound)}).defining(c.name)
}

func timeText(milliseconds int64) string {
	return time.UnixMilli(milliseconds).UTC().Format("2006-01-02 15:04:05.000+00")
}

// isTime returns the conditions that the column has a datetime, and that it has another one.
func (c column) isTime(milliseconds int64) truth {
	return truth{
		is:  all(c.thanTime(">=", milliseconds), c.thanTime("<=", milliseconds)),
		not: some(c.thanTime("<", milliseconds), c.thanTime(">", milliseconds)),
	}
}

// compare returns the conditions that two columns of numbers or datetimes compare so, and that they do not.
func (c column) compare(sign string, other column) truth {
	left, right := c.name, other.name
	if c.typ == bundle.TimestamptzColumn {
		left, right = c.milliseconds(), other.milliseconds()
	}
	return truth{
		is:  when(left+" "+sign+" "+right).defining(c.name, other.name),
		not: when(left+" "+opposite[sign]+" "+right).defining(c.name, other.name),
	}
}

// text returns a known value as the text that a column of a declared type has, if it has such a value.
func text(v types.Value, shape *bundle.Shape) (string, bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), shape.Form == bundle.ShapeString
	case types.Long:
		return strconv.FormatInt(int64(v), 10), shape.Form == bundle.ShapeLong
	case types.EntityUID:
		return string(v.ID), shape.Form == bundle.ShapeEntity && v.Type == shape.Entity
	}
	return "", false
}
