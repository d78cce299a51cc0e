// Package tools has the commands for the tools behind a gateway: lock accepts their definitions, schema makes Cedar of them,
// map prints the questions about a message, and check finds mistakes before traffic shows them.
//
// Package mcp makes the questions, and these commands use it. Read lock.go first.
package tools

// Command has the commands for the tools behind a gateway.
type Command struct {
	Lock   Lock   `cmd:"" help:"Say what the servers behind a gateway have now, and accept it."`
	Schema Schema `cmd:"" help:"Write a Cedar schema of the tools, for policies over their arguments."`
	Check  Check  `cmd:"" help:"Hold configuration, lock and policies of a gateway against each other."`
	Map    Map    `cmd:"" help:"Show what the gateway asks about a message, and what the answer is."`
}
