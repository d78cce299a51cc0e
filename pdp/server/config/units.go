package config

import (
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Size is a number of bytes, which is written like 64KiB or 4MiB.
type Size int64

// Rate is how often something may happen in a second, which is written like 10/s, 30/m or 100/h.
type Rate float64

const (
	sizePattern = `^[1-9][0-9]{0,9}(B|KiB|MiB|GiB)$`
	ratePattern = `^[1-9][0-9]{0,8}/[smh]$`
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

func (r *Reading) size(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && sizeForm.MatchString(n.Value) {
		for _, u := range sizeUnits {
			if digits, is := strings.CutSuffix(n.Value, u.name); is {
				count, err := strconv.ParseInt(digits, 10, 64)
				if err != nil || count > math.MaxInt64/u.bytes {
					break
				}
				v.SetInt(count * u.bytes)
				return
			}
		}
	}
	r.addAt(n, named(path)+" must be a size", "write it like 512B, 64KiB or 4MiB")
}

func (r *Reading) rate(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && rateForm.MatchString(n.Value) {
		digits, unit := n.Value[:len(n.Value)-2], n.Value[len(n.Value)-2:]
		for _, u := range rateUnits {
			if count, err := strconv.ParseInt(digits, 10, 64); u.name == unit && err == nil {
				v.SetFloat(float64(count) / u.seconds)
				return
			}
		}
	}
	r.addAt(n, named(path)+" must be a rate", "write it like 10/s, 30/m or 100/h")
}
