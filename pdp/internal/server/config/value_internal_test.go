package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// forms are scalars of every kind that a key can be of.
type forms struct {
	Text   string        `yaml:"text"`
	Number int           `yaml:"number"`
	Large  int64         `yaml:"large"`
	Ratio  float64       `yaml:"ratio"`
	On     bool          `yaml:"on"`
	While  time.Duration `yaml:"while"`
}

func TestEveryFormOfAScalar(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{text: a, number: 7, large: -9, ratio: 0.25, on: true, while: 90s}": "",
		"{ratio: 1, on: false, number: 0}":                                   "",
		"{ratio: 1e-3}":                                                      "",
		"{ratio: '1'}":                                                       "ratio must be a number; ",
		"{ratio: .nan}":                                                      "ratio must be a number; ",
		"{ratio: .inf}":                                                      "ratio must be a number; ",
		"{ratio: [1]}":                                                       "ratio must be a number; ",
		"{ratio: 0x10}":                                                      "ratio must be a number; ",
		"{on: yes}":                                                          "on must be true or false; ",
		"{on: 'true'}":                                                       "on must be true or false; ",
		"{on: True}":                                                         "on must be true or false; ",
		"{on: 1}":                                                            "on must be true or false; ",
		"{number: 1.0}":                                                      "number must be a whole number; ",
		"{number: true}":                                                     "number must be a whole number; ",
		"{number: 9223372036854775808}":                                      "number must be a whole number; ",
		"{while: 90}":                                                        "while must be a duration; ",
	} {
		r := newReading("f")
		var got forms
		r.value(r.document([]byte(text)), Form[forms]{}.root(), reflect.ValueOf(&got).Elem(), "")
		if text := r.mistakes.Error(); (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%s: got %q, want %q", text, r.mistakes, want)
		}
		if all := (forms{"a", 7, -9, 0.25, true, 90 * time.Second}); strings.HasPrefix(text, "{text") && got != all {
			t.Errorf("got %+v", got)
		}
	}
}

func TestBoundsOfEveryForm(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		key  Key
		v    any
		want string
	}{
		{Key{Min: "2", Max: "4"}, 1, "k is less than 2"}, {Key{Min: "2", Max: "4"}, 2, ""}, {Key{Min: "2", Max: "4"}, 4, ""}, {Key{Min: "2", Max: "4"}, 5, "k is more than 4"},
		{Key{Min: "0", Max: "1"}, -0.1, "k is less than 0"}, {Key{Min: "0", Max: "1"}, 1.0, ""}, {Key{Min: "0", Max: "1"}, 1.01, "k is more than 1"},
		{Key{Min: "1h", Max: "2d"}, time.Minute, "k is less than 1h"}, {Key{Min: "1h", Max: "2d"}, 48 * time.Hour, ""}, {Key{Min: "1h", Max: "2d"}, 49 * time.Hour, "k is more than 2d"},
		{Key{Enum: []string{"a", "b"}}, "b", ""}, {Key{Enum: []string{"a", "b"}}, "c", "k is not one of: a, b"},
	} {
		test.key.scalar = scalarOf(reflect.TypeOf(test.v))
		if got, _ := test.key.misfit(reflect.ValueOf(test.v), "k"); got != test.want {
			t.Errorf("%v: got %q, want %q", test.v, got, test.want)
		}
	}
}
