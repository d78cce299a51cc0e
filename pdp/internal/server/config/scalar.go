package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/when"
)

// Size is a number of bytes, which is written like 64KiB or 4MiB.
type Size int64

// Rate is how often something may happen in a second, which is written like 10/s, 30/m or 100/h.
type Rate float64

const (
	sizePattern = `^[1-9][0-9]{0,9}(B|KiB|MiB|GiB)$`
	ratePattern = `^[1-9][0-9]{0,8}/[smh]$`
	// durationPattern is the form of a duration; see [when.ParseDuration].
	durationPattern = `^([0-9]+d)?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*$`
)

var (
	sizeForm = regexp.MustCompile(sizePattern)
	rateForm = regexp.MustCompile(ratePattern)
)

// sizeUnits are those of a Size, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// rateUnits are those of a Rate, and their seconds.
var rateUnits = []struct {
	name    string
	seconds float64
}{{"/s", 1}, {"/m", 60}, {"/h", 3600}}

// String is the size as it is written.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return ""
}

// String is the rate as it is written.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if n := float64(r) * u.seconds; math.Abs(n-math.Round(n)) < 1e-6 && n >= 1 {
			return strconv.FormatInt(int64(math.Round(n)), 10) + u.name
		}
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64) + "/s"
}

// scalar describes how the values of a type are written.
type scalar struct {
	tags    []string // of YAML, which a value may have
	is, try string   // for a mistake
	parse   func(text string) (any, error)
	schema  map[string]any
}

var errForm = errors.New("the text is not of the form")

var scalars = map[reflect.Type]*scalar{
	reflect.TypeFor[time.Duration](): {
		[]string{"!!str"}, "a duration", "write it like 90d, 2160h or 1d12h",
		func(text string) (any, error) { return when.ParseDuration(text) },
		map[string]any{"type": "string", "minLength": 2, "pattern": durationPattern},
	},
	reflect.TypeFor[Size](): {[]string{"!!str"}, "a size", "write it like 512B, 64KiB or 4MiB", parseSize, map[string]any{"type": "string", "pattern": sizePattern}},
	reflect.TypeFor[Rate](): {[]string{"!!str"}, "a rate", "write it like 10/s, 30/m or 100/h", parseRate, map[string]any{"type": "string", "pattern": ratePattern}},
}

var (
	text  = &scalar{[]string{"!!str"}, "a string", "write it in quotes", func(text string) (any, error) { return text, nil }, map[string]any{"type": "string", "minLength": 1}}
	truth = &scalar{[]string{"!!bool"}, "true or false", "write one of them, without quotes", parseTruth, map[string]any{"type": "boolean"}}
	whole = &scalar{
		[]string{"!!int"}, "a whole number", "write digits alone, without quotes and units",
		func(text string) (any, error) { return strconv.ParseInt(text, 10, 64) },
		map[string]any{"type": "integer"},
	}
	number = &scalar{[]string{"!!int", "!!float"}, "a number", "write it like 0.25, without quotes", parseNumber, map[string]any{"type": "number"}}
)

// scalarOf is nil for a type whose values are no scalars.
func scalarOf(t reflect.Type) *scalar {
	if s := scalars[t]; s != nil {
		return s
	}
	return map[reflect.Kind]*scalar{reflect.String: text, reflect.Bool: truth, reflect.Int: whole, reflect.Int64: whole, reflect.Float64: number}[t.Kind()]
}

// parseTruth takes only the two words that every reader of YAML understands alike.
func parseTruth(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, errForm
	}
	return text == "true", nil
}

func parseNumber(text string) (any, error) {
	f, err := strconv.ParseFloat(text, 64)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		err = errForm
	}
	return f, err
}

func parseSize(text string) (any, error) {
	if !sizeForm.MatchString(text) {
		return nil, errForm
	}
	unit := strings.TrimLeft(text, "0123456789")
	count, err := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64)
	for _, u := range sizeUnits {
		if u.name == unit && err == nil && count <= math.MaxInt64/u.bytes {
			return count * u.bytes, nil
		}
	}
	return nil, errForm
}

func parseRate(text string) (any, error) {
	if !rateForm.MatchString(text) {
		return nil, errForm
	}
	digits, unit := text[:len(text)-2], text[len(text)-2:]
	count, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range rateUnits {
		if u.name == unit && err == nil {
			return float64(count) / u.seconds, nil
		}
	}
	return nil, errForm
}

// set sets a value to the one that a text has.
func (s *scalar) set(v reflect.Value, text string) error {
	parsed, err := s.parse(text)
	if err != nil {
		return err
	}
	to := reflect.ValueOf(parsed)
	if to.CanInt() && v.OverflowInt(to.Int()) {
		return errForm
	}
	v.Set(to.Convert(v.Type()))
	return nil
}

// compare compares a number or duration with a bound. Other values equal every bound: the number of items of a list is
// for the program to check.
func (k *Key) compare(v reflect.Value, bound string) int {
	if k.scalar == nil {
		return 0
	}
	parsed, _ := k.scalar.parse(bound)
	limit := reflect.ValueOf(parsed)
	if v.CanFloat() {
		return cmp.Compare(v.Float(), limit.Float())
	}
	return cmp.Compare(v.Int(), limit.Int())
}

// misfit is the reason why a value cannot be the key's, and a remedy; "" if it can be.
func (k *Key) misfit(v reflect.Value, path string) (what, try string) {
	switch {
	case len(k.Enum) > 0 && v.Kind() == reflect.String && !slices.Contains(k.Enum, v.String()):
		return fmt.Sprintf("%s is not one of: %s", path, strings.Join(k.Enum, ", ")), "write one of them"
	case k.Min != "" && k.compare(v, k.Min) < 0:
		return fmt.Sprintf("%s is less than %s", path, k.Min), "write at least that, or leave the key out"
	case k.Max != "" && k.compare(v, k.Max) > 0:
		return fmt.Sprintf("%s is more than %s", path, k.Max), "write at most that, or leave the key out"
	}
	return "", ""
}
