// Package mcptest makes no promise: it is for the tests of this module alone. It brings the partners that tests of the
// MCP gateway need, all of them real and on free ports of loopback: the clients, servers and the conformance
// suite of others ([Install]), the SDK's server that serves everything ([Everything]), a server that keeps every byte it
// gets ([NewRecorder]), a PDP that lies ([NewLiar]), and an issuer of tokens ([NewIssuer]). [Until] waits for what they do.
//
// The package knows no gateway. A test puts one between two partners, by itself.
package mcptest
