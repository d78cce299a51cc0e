package process

import (
	"bytes"
	"errors"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/server/config"
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

// CheckConfig reads a configuration file alone, and prints every mistake. Its error is [cli.No] if there are any.
func CheckConfig[T any](form config.Form[T], file string, s cli.Streams) (c T, from config.Origins, err error) {
	var mistakes config.Mistakes
	if from, err = form.Read(config.Given{File: file}, &c); !errors.As(err, &mistakes) {
		return c, from, err
	}
	for _, mistake := range mistakes {
		s.Print("%s", s.Colour(cli.Red, cli.Quoted(mistake)))
	}
	s.Print("%s cannot be served: %s; mend it and try again", file, cli.Plural(len(mistakes), "mistake"))
	return c, from, cli.No
}

// PrintConfig prints a configuration as a file, with the origin of each value.
func PrintConfig[T any](form config.Form[T], c T, from config.Origins, s cli.Streams) error {
	var text bytes.Buffer
	if err := form.Write(&text, c, from); err != nil {
		return err
	}
	s.Print("%s", cli.Lines(strings.TrimSuffix(text.String(), "\n")))
	return nil
}
