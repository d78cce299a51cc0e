package conformance

import (
	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casefile"
)

// Body is the text of a request's body. In a file it is YAML, and becomes JSON
// with its members in the order in which they stand, also twice; or it is tagged
// !raw and is sent as it stands. Either way it is a template, which
// [casefile.Fill] fills.
type Body struct {
	text  string
	given bool
}

// UnmarshalYAML keeps the text.
func (b *Body) UnmarshalYAML(node *yaml.Node) error {
	text, err := casefile.JSON(node)
	*b = Body{text: text, given: true}
	return err
}
