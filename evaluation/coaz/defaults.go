package coaz

import (
	_ "embed"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Defaults is the text of the default mappings, a JSON object by method. They are those of the binding, but for
// completion/complete: as it is printed there, it is no CEL, since its expressions hold a $ inside.
//
//go:embed defaults.json
var Defaults string

//go:embed forgotten.json
var forgotten string

func (b *Binding) compileDefaults() (err error) {
	if b.defaults, err = b.compileStandard(Defaults); err == nil {
		b.forgotten, err = b.compileStandard(forgotten)
	}
	return err
}

func (b *Binding) compileStandard(text string) (map[string]*Mapping, error) {
	var texts map[string]jsontext.Value
	if err := json.Unmarshal([]byte(text), &texts); err != nil {
		return nil, fmt.Errorf("coaz: the default mappings: %w", err)
	}
	all := make(map[string]*Mapping, len(texts))
	for method, text := range texts {
		mapping, err := evaluation.ParseObject(text, evaluation.DefaultLimits())
		if err != nil {
			return nil, fmt.Errorf("coaz: the default mapping of %s: %w", method, err)
		}
		c := compiler{binding: b, author: standard, dialect: AuthZEN, language: b.declared, limits: DefaultLimits()}
		m, err := c.compile(mapping)
		if err != nil {
			return nil, fmt.Errorf("coaz: the default mapping of %s: %w", method, err)
		}
		m.method = method
		all[method] = m
	}
	return all, nil
}
