// Package mcp is a gateway in front of an MCP server: it asks a PDP about every request of a client, forwards what is
// permitted, and refuses all else. A client speaks with it as with the server itself, and neither has to be changed.
//
// Begin with [Form], which reads a [Config], and [New], which makes a [Gateway] of it. [Gateway.Handler] is the gateway
// over HTTP, [Gateway.ServeStdio] the same for one client over the standard streams. What listens, and where what is
// counted goes, the program brings.
//
// # What it refuses to do
//
// It decides nothing: policies are the PDP's, and where that gives no answer, nothing goes on. It forwards the bytes that
// were decided about, and no others. It passes on nothing that a client showed it for itself: no token, no cookie, no
// header; what it shows an upstream is its own. A question that an upstream writes for its tools can narrow what is
// permitted, never widen it, unless the configuration says so. It guesses nothing: a configuration with a mistake, or one
// that would let somebody in whom nobody named, does not start.
package mcp
