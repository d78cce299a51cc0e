package door

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

const requestIDHeader = "X-Request-Id"

// Headers of every answer, for browsers: they take the answer for the type that it states, show it nowhere, and run
// nothing in it. (It does not say that this host speaks TLS only: that would be about all its
// ports.) The values are shared, and not to be changed.
var (
	NoSniff   = []string{"nosniff"}
	NoContent = []string{"default-src 'none'; frame-ancestors 'none'"}
)

// noStore is shared likewise: an answer is true at its moment only.
var noStore = []string{"no-store"}

// Identify is the first thing that happens to a request: its X-Request-ID goes onto the answer, whichever that will be,
// or is refused and goes nowhere.
func (d *Door) Identify(c echo.Context) error {
	header := c.Response().Header()
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"], header["Content-Security-Policy"] = NoSniff, NoContent
	if d.Stopping.Load() {
		header.Set("Connection", "close") // the next request would find no server
	}
	ids := c.Request().Header[requestIDHeader]
	switch {
	case len(ids) == 0:
	case len(ids) > 1:
		return NewProblem(http.StatusBadRequest, "X-Request-ID is given more than once; send one")
	case len(ids[0]) > d.Options.Limits.RequestID:
		return Beyond(http.StatusBadRequest,
			fmt.Sprintf("X-Request-ID has more than %d bytes; send a shorter one", d.Options.Limits.RequestID))
	case strings.ContainsFunc(ids[0], unicode.IsControl):
		return NewProblem(http.StatusBadRequest, "X-Request-ID holds control characters; send it without")
	default:
		header[requestIDHeader] = ids
	}
	return nil
}

// RequestID is the id on the answer: "" if none was sent, or none fit to be logged.
func RequestID(c echo.Context) string {
	if ids := c.Response().Header()[requestIDHeader]; len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// WantJSON accepts a header that leaves one reading of the body: a body that others would read differently is not read.
func WantJSON(h http.Header) error { return wantType(h, "application/json") }

func wantForm(h http.Header) error { return wantType(h, "application/x-www-form-urlencoded") }

func wantType(h http.Header, wanted string) error {
	types := h["Content-Type"]
	if len(types) != 1 {
		return NewProblem(http.StatusBadRequest, "the Content-Type must be given once; send "+wanted)
	}
	mediaType, err := types[0], error(nil)
	if mediaType != wanted { // nearly everybody sends just this, which need not be parsed
		mediaType, _, err = mime.ParseMediaType(mediaType)
	}
	if err != nil || mediaType != wanted {
		return NewProblem(http.StatusBadRequest,
			"the Content-Type is not "+wanted+"; send it, with parameters or without")
	}
	for _, encoding := range h["Content-Encoding"] {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return NewProblem(http.StatusBadRequest,
				"the body has a Content-Encoding, and would not be read as what was meant; send it as it is")
		}
	}
	return nil
}

// PathValue is a part of the path as it was meant. If anything in the path was escaped without need, echo hands the
// part over as it was written.
func PathValue(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value, nil
	}
	value, err := url.PathUnescape(value)
	if err != nil {
		return "", NewProblem(http.StatusBadRequest,
			"the path is escaped in no legal way; write what is no letter or digit as % and two hexadecimal digits")
	}
	return value, nil
}

// parameters reads a query string. Each parameter must be known, given once, and not empty: a slip of the pen must not
// widen the question.
func parameters(c echo.Context, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, NewProblem(http.StatusBadRequest,
			"the query cannot be read; write what is no letter or digit as % and two hexadecimal digits")
	}
	given := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name][0]
		switch {
		case !slices.Contains(known, name):
			return nil, NewProblem(http.StatusBadRequest,
				fmt.Sprintf("there is no parameter %s; there are %s", harmlessName(name), cmp.Or(strings.Join(known, ", "), "none here")))
		case len(values[name]) > 1:
			return nil, BadParameter(name, "is given more than once; give it once")
		case value == "":
			return nil, BadParameter(name, "is empty; leave it out, or give it a value")
		case !utf8.ValidString(value):
			return nil, BadParameter(name, "is not UTF-8; write it so, and percent-encoded")
		}
		given[name] = value
	}
	return given, nil
}

// harmlessName is an unknown name if it looks like one: errors quote nothing else that was sent.
func harmlessName(name string) string {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' && r != '-' }
	if name == "" || len(name) > 32 || strings.ContainsFunc(name, other) {
		return "of that name"
	}
	return name
}

// BadParameter is the problem of a query parameter.
func BadParameter(name, what string) *Problem {
	return NewProblem(http.StatusBadRequest, "the parameter "+name+" "+what)
}

// usualPage is how many items a page has unless the client says, and mostOnPage the most it may.
const (
	usualPage  = 50
	mostOnPage = 200
)

// PageLimit reads the parameter limit: how many items a page may have.
func PageLimit(text string) (int, error) {
	if text == "" {
		return usualPage, nil
	}
	limit, err := strconv.ParseUint(text, 10, 31)
	if err != nil || limit == 0 {
		return 0, BadParameter("limit", fmt.Sprintf("is no number of entries; give one from 1 to %d", mostOnPage))
	}
	return int(min(limit, mostOnPage)), nil
}

// EntityTag is the ETag of an answer.
func EntityTag(content []byte) string {
	hash := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`
}

// Matches is the weak comparison of RFC 9110, 13.1.2. Our tags hold no comma.
func Matches(lists []string, tag string) bool {
	for _, list := range lists {
		for given := range strings.SplitSeq(list, ",") {
			given = strings.TrimSpace(given)
			if given == "*" || strings.TrimPrefix(given, "W/") == tag {
				return true
			}
		}
	}
	return false
}
