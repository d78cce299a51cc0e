package coaz_test

import (
	"errors"
	"fmt"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

// The JSON of README.md, which readme_test.go holds to it.
var (
	toolText = []byte(`{
  "name": "create_ticket",
  "description": "Create a ticket",
  "inputSchema": {
    "type": "object",
    "properties": {
      "title": { "type": "string" },
      "queue": { "type": "string" }
    },
    "required": ["title"],
    "x-authzen-mapping": {
      "evaluation": {
        "subject": { "type": "user", "id": "$token.sub" },
        "action": { "name": "tool.invoke" },
        "resource": { "type": "tool", "id": "$'tickets:' + params.name" },
        "context": { "agent": "$token.?client_id", "queue": "$params.arguments.?queue" }
      }
    }
  }
}`)
	paramsText = []byte(`{ "name": "create_ticket", "arguments": { "title": "The printer is on fire" } }`)
	claimsText = []byte(`{ "sub": "alice", "client_id": "assistant-1", "aud": "https://mcp.example.com/mcp" }`)
)

func Example() {
	binding, err := coaz.New(coaz.Options{Resource: "https://mcp.example.com/mcp"})
	if err != nil {
		fmt.Println(err)
		return
	}
	tool, err1 := evaluation.ParseWithNulls(toolText, evaluation.DefaultLimits())
	params, err2 := evaluation.ParseWithNulls(paramsText, evaluation.DefaultLimits())
	claims, err3 := evaluation.ParseWithNulls(claimsText, evaluation.DefaultLimits())
	if err := errors.Join(err1, err2, err3); err != nil {
		fmt.Println(err)
		return
	}
	mapping, err := binding.Parse(tool)
	if err == nil && mapping == nil { // the tool declares none
		mapping, _ = binding.Default("tools/call")
	}
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	questions, err := mapping.Questions(coaz.Operation{Method: "tools/call", Params: params, Token: claims})
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	for _, request := range questions.Requests {
		fmt.Println("may", request.Subject.ID, request.Action.Name, request.Resource.ID)
	}
	// Output:
	// may alice tool.invoke tickets:create_ticket
}

func ExampleBinding_Compile() {
	binding, err := coaz.New(coaz.Options{Inputs: []string{"server"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err1 := evaluation.ParseWithNulls([]byte(`{"evaluation": {
		"subject": {"type": "identity", "id": "$token.sub"},
		"action": {"name": "resources/templates/list"},
		"resource": {"type": "mcp_server", "id": "$server.resource"}}}`), evaluation.DefaultLimits())
	inputs, err2 := evaluation.ParseWithNulls([]byte(`{"server": {"resource": "https://mcp.example.com/mcp"}}`), evaluation.DefaultLimits())
	claims, err3 := evaluation.ParseWithNulls(claimsText, evaluation.DefaultLimits())
	if err := errors.Join(err1, err2, err3); err != nil {
		fmt.Println(err)
		return
	}
	mapping, err := binding.Compile(text, coaz.AuthZEN)
	if err != nil {
		fmt.Println(err)
		return
	}
	questions, err := mapping.Questions(coaz.Operation{Method: "resources/templates/list", Token: claims, Inputs: inputs})
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	fmt.Println(string(questions.Envelopes[0].Body))
	// Output:
	// {"subject":{"type":"identity","id":"alice"},"action":{"name":"resources/templates/list"},"resource":{"type":"mcp_server","id":"https://mcp.example.com/mcp"}}
}

func ExampleMapping_Reads() {
	binding, err := coaz.New(coaz.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tool, err := evaluation.ParseWithNulls([]byte(`{"name": "read_file", "inputSchema": {
		"type": "object", "properties": {"path": {"type": "string"}},
		"x-authzen-mapping": {"evaluation": {
			"action": {"name": "read"},
			"resource": {"type": "file", "id": "$params.arguments.file"}}}}}`), evaluation.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	mapping, err := binding.Parse(tool)
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	for _, read := range mapping.Reads() {
		fmt.Println(read.Pointer, read.Root, read.Names, read.Needed)
	}
	// Output:
	// /evaluation/resource/id params [arguments file] 2
}
