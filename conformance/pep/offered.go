package pep

import (
	"embed"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casefile"
)

//go:embed cases/*.yaml
var files embed.FS

// toolsFile holds the offer, and no cases.
const toolsFile = "tools.yaml"

// offered is the offer that an MCP server must make to be judged: JSON arrays, as lists give them.
type offered struct {
	Tools, Resources, Templates, Prompts string
	// Pages are the tools as the stub upstream lists them: a gateway must learn the mappings of all pages.
	Pages [2]string
}

// offers reads cases/tools.yaml.
var offers = sync.OnceValues(func() (o offered, err error) {
	var file struct {
		Resources, Prompts casefile.Text
		ResourceTemplates  casefile.Text `yaml:"resourceTemplates"`
		Tools              []casefile.Text
		Mappings, Sep      yaml.Node
	}
	if err := casefile.Read(files, "cases/"+toolsFile, &file); err != nil {
		return o, err
	}
	var tools []string
	for _, t := range file.Tools {
		tools = append(tools, string(t))
	}
	declared, err := definitions(file.Mappings, func(name string, mapping *yaml.Node) (string, error) {
		text, err := casefile.JSON(mapping)
		return `{"name":` + name + `,"inputSchema":{"type":"object","x-authzen-mapping":` + text + "}}", err
	})
	if err != nil {
		return o, err
	}
	sep, err := definitions(file.Sep, sepDefinition)
	if err != nil {
		return o, err
	}
	tools = append(append(tools, declared...), sep...)
	list := func(tools []string) string { return "[" + strings.Join(tools, ",") + "]" }
	page := len(file.Tools) // those of the figures, which a case looks for in the first page
	return offered{list(tools), string(file.Resources), string(file.ResourceTemplates), string(file.Prompts), [2]string{list(tools[:page]), list(tools[page:])}}, nil
})

// definitions makes a tool of each member.
func definitions(all yaml.Node, make func(name string, of *yaml.Node) (string, error)) (tools []string, err error) {
	for i := 0; i < len(all.Content); i += 2 {
		tool, err := make(casefile.Quote(all.Content[i].Value), all.Content[i+1])
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// sepDefinition is a tool of the dialect of February 2026.
func sepDefinition(name string, of *yaml.Node) (string, error) {
	var parts struct {
		Coaz    casefile.Text
		Mapping casefile.Text `yaml:"x-coaz-mapping"`
	}
	if err := of.Decode(&parts); err != nil {
		return "", err
	}
	mapping := ""
	if parts.Mapping != "" {
		mapping = `,"x-coaz-mapping":` + string(parts.Mapping)
	}
	return fmt.Sprintf(`{"name":%s,"coaz":%s,"inputSchema":{"type":"object"%s}}`, name, parts.Coaz, mapping), nil
}

// Tools is the document of the offer that a server makes that is its own PEP, for it to be judged: an object of the arrays tools,
// resources, resourceTemplates and prompts, each as MCP lists it.
func Tools() ([]byte, error) {
	o, err := offers()
	if err != nil {
		return nil, err
	}
	text := jsontext.Value(fmt.Sprintf(`{"tools":%s,"resources":%s,"resourceTemplates":%s,"prompts":%s}`, o.Tools, o.Resources, o.Templates, o.Prompts))
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, fmt.Errorf("%s: %w", toolsFile, err)
	}
	return append(text, '\n'), nil
}
