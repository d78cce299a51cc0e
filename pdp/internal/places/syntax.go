package places

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp/internal/spelling"
)

// Fault is what keeps a text from being read.
type Fault struct {
	Line, Column int // 0 if unknown
	What, Try    string
	Word, Meant  string // that stands at the place, and that is probably meant; "" if none is
}

// The forms of cedar-go's messages. The place in the message of a policy is mostly the one behind the token that is not
// understood, because cedar-go has read that token already.
var (
	placeText  = regexp.MustCompile(`:(\d+):(\d+)`)
	exactText  = regexp.MustCompile(`(?s)exact got (.*) want (\S+)$`)
	listText   = regexp.MustCompile(`(?s)": got .* want ,$`)
	namedText  = regexp.MustCompile("(?s)\": (`(.*)` is (?:not )?a (?:function|method).*|(\\w+) expects .*|duplicate (?:key|annotation): @?(.*))$")
	tailText   = regexp.MustCompile(`": ([a-z ]+)(?:: [^"]*)?$`)
	schemaText = regexp.MustCompile(`(?s)^[^:]*:\d+:\d+: expected (.*), got (.*)$`)
	restText   = regexp.MustCompile(`(?s)^[^:]*:\d+:\d+: (.*)$`)
)

const syntaxTry = "check the syntax at this place"

// calls are the functions and methods of Cedar.
var calls = []string{"ip", "decimal", "datetime", "duration", "contains", "containsAll", "containsAny", "isEmpty", "hasTag", "getTag",
	"lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "isIpv4", "isIpv6", "isLoopback", "isMulticast", "isInRange",
	"offset", "durationSince", "toDate", "toTime", "toMilliseconds", "toSeconds", "toMinutes", "toHours", "toDays"}

// InPolicies explains the message with which cedar-go refuses a text of policies.
func InPolicies(text, message string) Fault {
	f := fault{text: text, tokens: Tokens(text)}
	m := placeText.FindStringSubmatch(message)
	if m == nil {
		return f.unplaced(message)
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	offset := Offset(text, line, column)
	at, _ := slices.BinarySearchFunc(f.tokens, offset, func(t Token, offset int) int { return t.From - offset })
	if exact := exactText.FindStringSubmatch(message); exact != nil {
		if exact[1] != "" {
			at--
		}
		return f.expected(at, exact[2])
	}
	if listText.MatchString(message) {
		return f.expected(at, ",")
	}
	if m := namedText.FindStringSubmatch(message); m != nil {
		name := cmp.Or(m[2], m[3], m[4])
		what, near := strings.Replace(strings.ReplaceAll(m[1], "`", ""), name, shown(name), 1), ""
		if strings.Contains(what, " is not a ") {
			near = meant(name, calls...)
		}
		return f.near(f.before(at, name[strings.LastIndex(name, ":")+1:]), what, "", near)
	}
	tail := tailText.FindStringSubmatch(message)
	if tail == nil {
		return Fault{Line: line, Column: column, What: message[strings.LastIndex(message, ": ")+2:], Try: syntaxTry}
	}
	if at < len(f.tokens) || !f.open() {
		at--
	}
	return f.unexpected(at, tail[1])
}

// InSchema explains the message with which cedar-go refuses the text of a schema.
func InSchema(text, message string) Fault {
	f := fault{text: text, tokens: Tokens(text)}
	m := placeText.FindStringSubmatch(message)
	if m == nil {
		return Fault{What: message, Try: syntaxTry}
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	if expected := schemaText.FindStringSubmatch(message); expected != nil {
		start := Offset(text, line, 1) // this parser counts bytes
		at, _ := slices.BinarySearchFunc(f.tokens, start+column-1, func(t Token, offset int) int { return t.From - offset })
		if at == len(f.tokens) || f.tokens[at].From == start+column-1 {
			return f.inSchema(at, expected[1])
		}
	}
	what := message
	if rest := restText.FindStringSubmatch(message); rest != nil {
		what = rest[1]
	}
	return Fault{Line: line, Column: column, What: what, Try: syntaxTry}
}

// fault explains one message about a text.
type fault struct {
	text   string
	tokens []Token
}

// token is the token at an index, or one without text at the end.
func (f fault) token(i int) Token {
	if 0 <= i && i < len(f.tokens) {
		return f.tokens[i]
	}
	if i < 0 {
		return Token{}
	}
	return Token{From: f.end(), To: f.end()}
}

// end is where the last token ends.
func (f fault) end() int {
	if len(f.tokens) == 0 {
		return 0
	}
	return f.tokens[len(f.tokens)-1].To
}

// open reports if something has to follow the last token.
func (f fault) open() bool {
	last := f.token(len(f.tokens) - 1).Text
	return last != "" && !f.token(len(f.tokens)-1).IsName() && strings.ContainsAny(last[:1], `([{,:.=<>&|+-*!@`)
}

// before is the index of the last token of a name before an index.
func (f fault) before(at int, name string) int {
	for i := min(at, len(f.tokens)) - 1; i >= 0; i-- {
		if f.tokens[i].Name() == name {
			return i
		}
	}
	return at
}

func (f fault) at(i int, what, try string) Fault {
	return f.near(i, what, try, "")
}

// near is a fault at a token in whose place something else is probably meant.
func (f fault) near(i int, what, try string, near string) Fault {
	t := f.token(i)
	line, column := Position(f.text, t.From)
	if near != "" {
		what += "; did you mean " + strconv.Quote(near) + "?"
	} else if habit := habits[t.Text]; habit.try == try {
		near = habit.write
	}
	word := t.Text
	if near == "" {
		word = ""
	}
	return Fault{line, column, what, cmp.Or(try, syntaxTry), word, near}
}

// shown is a token as messages show it. Texts and numbers are values, which stay in their files.
func shown(text string) string {
	const most = 128
	switch {
	case text == "":
		return "the end of the file"
	case text[0] == '"':
		return "a text"
	case Token{Text: text}.IsNumber():
		return "a number"
	case len(text) > most:
		return fmt.Sprintf("a name of %d bytes", len(text))
	}
	return strconv.Quote(text)
}

// expected says that a token does not stand where another must. If something new begins with it on another line, the other is
// missing where the line before ends.
func (f fault) expected(at int, want string) Fault {
	what := fmt.Sprintf("expected %s before %s", strconv.Quote(want), shown(f.token(at).Text))
	if try := f.habit(at); try != "" {
		return f.at(at, what, try)
	}
	t := f.token(at)
	if want == ";" && t.Text != "" && (t.IsName() && t.Text != "permit" && t.Text != "forbid") {
		return f.near(at, `expected "when", "unless" or ";" in place of `+shown(t.Text),
			"a condition begins with when or unless, and a policy ends with a semicolon", meant(t.Text, "when", "unless"))
	}
	try := ""
	switch want {
	case ";":
		try = "a policy ends with a semicolon"
	case "principal", "action", "resource":
		try = "the scope of a policy is (principal, action, resource), in this order"
		if t.Text != "" && t.IsName() {
			return f.near(at, fmt.Sprintf("expected %s in place of %s", strconv.Quote(want), shown(t.Text)), try, meant(t.Text, want))
		}
	case ")", "}", "]":
		try = "close the bracket"
	case ",":
		try = "separate with a comma"
	}
	return f.missing(at, want, what, try)
}

// missing is the fault of a token that is not there. Its place is the end of the token before, if the file ends there,
// or if want is one of ;,)]} and something new begins on another line; else it is the token that is there. want is the
// missing token; what and try are the message and the remedy.
func (f fault) missing(at int, want, what, try string) Fault {
	before, t := f.token(at-1), f.token(at)
	begins := t.Text != "" && (t.IsName() || t.Text == "@") && strings.Contains(f.text[before.To:t.From], "\n")
	if at > 0 && begins && strings.Contains(";,)]}", want) || at >= len(f.tokens) {
		line, column := Position(f.text, before.To)
		return Fault{Line: line, Column: column, What: what, Try: cmp.Or(try, syntaxTry)}
	}
	return f.at(at, what, try)
}

// habit is the remedy for a token that other languages have and Cedar does not; "" for any other token.
func (f fault) habit(at int) string {
	t := f.token(at).Text
	if strings.Contains("'`“”‘’", t) && t != "" {
		return "write texts in double quotes"
	}
	return habits[t].try
}

// habits are tokens of other languages, with the remedy, and the token that Cedar has in their place.
var habits = map[string]struct{ try, write string }{
	"?": {`templates are not supported: write an entity, such as user::"alice", in place of ?principal or ?resource`, ""},
	"=": {"compare with ==", "=="},
	"&": {habitAnd, "&&"}, "and": {habitAnd, "&&"}, "AND": {habitAnd, "&&"},
	"|": {habitOr, "||"}, "or": {habitOr, "||"}, "OR": {habitOr, "||"},
	"not": {habitNot, "!"}, "NOT": {habitNot, "!"},
}

const habitAnd, habitOr, habitNot = "write && for and", "write || for or", "write ! for not"

// unexpected explains a message that names no token.
func (f fault) unexpected(at int, message string) Fault {
	t := f.token(at)
	where := " before " + shown(t.Text)
	try := f.habit(at)
	switch message {
	case "unexpected effect":
		if try == "" {
			try = "a policy begins with permit or forbid, or with annotations before them"
		}
		return f.near(at, `expected "permit" or "forbid" in place of `+shown(t.Text), try, meant(t.Text, "permit", "forbid"))
	case "invalid primary":
		if t.Text != "" && t.IsName() && try == "" {
			return f.near(at, shown(t.Text)+" is no variable",
				"the variables are principal, action, resource and context; write texts in double quotes",
				meant(t.Text, "principal", "action", "resource", "context", "true", "false"))
		}
		return f.at(at, "expected an expression"+where, try)
	case "unexpected token":
		return f.at(at, "expected a name, or an id in double quotes,"+where, try)
	case "expected ident", "expected ident after dot":
		if t.Text == "?" {
			return f.at(at, "templates are not supported", `write an entity, such as user::"alice", in place of ?principal or ?resource`)
		}
		return f.at(at, "expected a name"+where, try)
	case "expected ident or string":
		return f.at(at, "expected a name, or a text in double quotes,"+where, try)
	case "expected string", "expected string literal":
		return f.at(at, "expected a text in double quotes"+where, try)
	}
	return f.at(at, message+where, try)
}

// unplaced explains a message without a place.
func (f fault) unplaced(message string) Fault {
	for i, t := range f.tokens {
		if !t.IsNumber() {
			continue
		}
		text := t.Text
		if f.token(i-1).Text == "-" {
			text = "-" + text
		}
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return f.at(i, "the number is too large", "numbers are whole, and have 64 bits")
		}
	}
	return Fault{Try: syntaxTry}
}

// inSchema explains what is expected in a schema.
func (f fault) inSchema(at int, want string) Fault {
	t := f.token(at)
	want = strings.ReplaceAll(want, "'", `"`)
	if strings.HasPrefix(want, "declaration") && t.Text == "external" {
		return f.at(at, "external declarations are not supported", "declare the type here, as in entity User;")
	}
	if strings.HasPrefix(want, "declaration") && t.Text != "" && at < len(f.tokens) {
		return f.near(at, "expected entity, action, type or namespace in place of "+shown(t.Text), "", meant(t.Text, "entity", "action", "type", "namespace"))
	}
	what := "expected " + want + " before " + shown(t.Text)
	return f.missing(at, strings.Trim(want, `"`), what, "")
}

// meant names the nearest of some words, if one is near.
func meant(name string, words ...string) string {
	near, _ := spelling.Nearest(strings.ToLower(name), words)
	if near == "" && slices.Contains(words, strings.ToLower(name)) {
		near = strings.ToLower(name)
	}
	return near
}
