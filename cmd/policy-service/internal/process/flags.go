package process

import (
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"policy-service/pdp/server/config"
)

// Flags are the flags that were given, by the keys that they set: the fields of a struct with this tag.
func Flags(of any, tag string) (all []config.Flag) {
	for field, value := range reflect.ValueOf(of).Fields() {
		if key, text := field.Tag.Get(tag), value.String(); key != "" && text != "" {
			all = append(all, config.Flag{Key: key, Name: flagName(field), Value: text})
		}
	}
	return all
}

// flagName is how people write the flag of a field.
func flagName(field reflect.StructField) string {
	if name := field.Tag.Get("name"); name != "" {
		return "--" + name
	}
	return "--" + strings.ToLower(field.Name)
}

// HelpOfKeys gives each flag with this tag the help of the key that it sets.
func HelpOfKeys(tag string, keys []config.Key) func(*kong.Kong) error {
	docs := map[string]string{}
	for _, key := range keys {
		docs[key.Path] = key.Doc
		if key.Default != "" {
			docs[key.Path] += " The default is " + key.Default + "."
		}
	}
	return func(k *kong.Kong) error {
		return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
			if flag, ok := node.(*kong.Flag); ok && flag.Tag.Has(tag) {
				flag.Help = docs[flag.Tag.Get(tag)]
			}
			return next(nil)
		})
	}
}
