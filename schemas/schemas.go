// Package schemas holds the documents that describe the service to machines:
// [OpenAPI], and the JSON Schemas of what is sent and answered, which it refers
// to; and the JSON Schemas of files that people write, for their editors. It holds
// text and nothing that acts on it.
package schemas

import "embed"

// OpenAPI is the OpenAPI 3.1 document of everything the service serves.
//
//go:embed openapi.yaml
var OpenAPI []byte

//go:embed obligations/*.json
var obligations embed.FS

// Obligation is the JSON Schema of the properties of an obligation type; nil
// where there is no such type.
func Obligation(name string) []byte {
	text, err := obligations.ReadFile("obligations/" + name + ".json")
	if err != nil {
		return nil
	}
	return text
}

// AccessRequest is the JSON Schema of what an access request may hold besides the
// request that was denied.
//
//go:embed access_request.json
var AccessRequest []byte

// CoazMapping is the JSON Schema of a COAZ mapping, in either dialect.
//
//go:embed coaz-mapping.schema.json
var CoazMapping []byte

// ToolsLock is the JSON Schema of a file with the tools of MCP servers as somebody
// has accepted them.
//
//go:embed tools-lock.schema.json
var ToolsLock []byte

// Access is the JSON Schema of a tool access declaration.
//
//go:embed access.schema.json
var Access []byte

// Bundle is the JSON Schema of bundle.yaml, the settings of a bundle.
//
//go:embed bundle.schema.json
var Bundle []byte

// Obligations is the JSON Schema of obligations.yaml. It has those of all types in it, so that an
// editor needs one file.
//
//go:embed obligations.schema.json
var Obligations []byte

// Tests is the JSON Schema of a file of tests of a bundle.
//
//go:embed tests.schema.json
var Tests []byte
