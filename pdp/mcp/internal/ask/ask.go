// Package ask has the PDP decide whether an MCP request may go on, what is done to its result, and what of a list is shown.
// It is the one place where questions are made and where refusals are written.
//
// Begin with [Asker.Ask].
package ask

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
)

// Operation is one request of a client.
type Operation struct {
	Principal *identity.Principal
	// Era is the client's: codes of errors go by it.
	Era era.Era
	// Server is the name of the upstream, Method and Params are the request's, as received.
	Server string
	Method string
	Params jsontext.Value
	// Tool is what tools/call names, nil for all other methods.
	Tool *Tool
}

// Tool is a tool of an upstream as a gateway lists it.
type Tool struct {
	// Server and Name are the upstream's name and the tool's own; Shown is the name that clients use.
	Server, Name, Shown string
	// Definition is the whole definition as it came.
	Definition jsontext.Value
	// Labels are the operator's.
	Labels map[string]string
}

// Refusal is why a request does not go on, as the client is told.
type Refusal struct {
	// Status is that of the HTTP response: 200 unless the configuration or the era has another.
	Status  int
	Code    int
	Message string
	Data    jsontext.Value
	// Why is for the operator's log.
	Why string
}
