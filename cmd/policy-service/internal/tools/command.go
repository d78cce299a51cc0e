// Package tools has the commands of people who put tools behind the gateway: what is accepted of them, what would be asked
// about a message, and what is wrong before traffic shows it.
//
// What the gateway asks is not here: package mcp has that, and these commands use it. Read lock.go first.
package tools

// Command is what there is about the tools behind a gateway.
type Command struct {
	Lock   Lock   `cmd:"" help:"Say what the servers behind a gateway have now, and accept it."`
	Schema Schema `cmd:"" help:"Write a Cedar schema of the tools, for policies over their arguments."`
	Check  Check  `cmd:"" help:"Hold configuration, lock and policies of a gateway against each other."`
	Map    Map    `cmd:"" help:"Show what the gateway asks about a message, and what the answer is."`
}
