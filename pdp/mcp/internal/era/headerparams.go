package era

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// HeaderParam is a parameter of a tool that a header mirrors.
type HeaderParam struct {
	// path are the names that lead to the parameter in the arguments.
	path []string
	// header is the whole name of the header, as [net/http.Header] has it.
	header string
}

const (
	annotation = "x-mcp-header"
	// mostHeaders is how many parameters of one tool have headers: servers take no request with many more.
	mostHeaders = 64
)

// HeaderParams are the parameters that an input schema wants mirrored. It is an error if an annotation breaks a rule of the
// protocol: then the tool is not valid, and no client may list it.
func HeaderParams(schema jsontext.Value) ([]HeaderParam, error) {
	if !bytes.Contains(schema, []byte(annotation)) && !bytes.ContainsRune(schema, '\\') {
		return nil, nil
	}
	var w schemaWalk
	if err := w.schema(schema, nil, true); err != nil {
		return nil, err
	}
	return w.found, nil
}

type schemaWalk struct{ found []HeaderParam }

// Where schemas stand within a schema, beside properties: as a value, in an array, or as the values of a map. Anything
// elsewhere is data.
var (
	below = map[string]bool{
		"items": true, "additionalItems": true, "additionalProperties": true, "unevaluatedItems": true,
		"unevaluatedProperties": true, "contains": true, "propertyNames": true, "not": true, "if": true, "then": true,
		"else": true, "contentSchema": true, "allOf": true, "anyOf": true, "oneOf": true, "prefixItems": true,
	}
	belowNames = map[string]bool{
		"$defs": true, "definitions": true, "patternProperties": true, "dependentSchemas": true, "dependencies": true,
	}
)

// schema walks through a schema. Reachable reports that nothing but properties leads to it from the root.
func (w *schemaWalk) schema(v jsontext.Value, path []string, reachable bool) error {
	s, err := rpc.ParseObject(v)
	if err != nil { // true, false, or nothing that we could read an annotation in
		return nil
	}
	if s.Get(annotation) != nil {
		if !reachable || len(path) == 0 {
			return fmt.Errorf("%s stands where no chain of properties leads", annotation)
		}
		if err := w.take(s, path); err != nil {
			return err
		}
	}
	for keyword, v := range s.Members {
		switch {
		case keyword == "properties":
			err = w.schemas(v, path, reachable)
		case belowNames[keyword]:
			err = w.schemas(v, nil, false)
		case below[keyword]:
			err = w.anySchema(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// schemas walks through the values of a map.
func (w *schemaWalk) schemas(v jsontext.Value, path []string, reachable bool) error {
	for name, inner := range objectOf(v).Members {
		if err := w.schema(inner, append(slices.Clip(path), name), reachable); err != nil {
			return err
		}
	}
	return nil
}

// anySchema walks through a schema, or the schemas of an array.
func (w *schemaWalk) anySchema(v jsontext.Value) error {
	if v.Kind() != '[' {
		return w.schema(v, nil, false)
	}
	all, err := rpc.Elements(v)
	for _, inner := range all {
		if err := w.schema(inner, nil, false); err != nil {
			return err
		}
	}
	return err
}

// take takes the annotation of a parameter.
func (w *schemaWalk) take(s rpc.Object, path []string) error {
	name := s.GetString(annotation)
	header := http.CanonicalHeaderKey(ParamPrefix + name)
	switch kind := s.GetString("type"); {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }):
		return fmt.Errorf("%s of the parameter %q is no name of a header", annotation, path)
	case kind != "string" && kind != "integer" && kind != "boolean":
		return fmt.Errorf("%s stands at the parameter %q, whose type is not string, integer or boolean", annotation, path)
	case slices.ContainsFunc(w.found, func(p HeaderParam) bool { return p.header == header }):
		return fmt.Errorf("%s of the parameter %q is that of another", annotation, path)
	case len(w.found) >= mostHeaders:
		return fmt.Errorf("more than %d parameters have %s", mostHeaders, annotation)
	}
	w.found = append(w.found, HeaderParam{path, header})
	return nil
}

func isTokenRune(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r < 0x7F && strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
