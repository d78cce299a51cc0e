// Package mcp is a gateway in front of an MCP server: it asks a PDP about every request of a client, forwards permitted
// ones, and refuses all others. A client speaks with it as with the server itself, and neither has to be changed.
//
// Begin with [Form], which reads a [Config], and [New], which makes a [Gateway] of it. [Gateway.Handler] is the gateway
// over HTTP, [Gateway.ServeStdio] the same for one client over the standard streams. The program brings the listener, and
// the exporter of metrics.
//
// # Limits of its power
//
// It decides nothing: policies are the PDP's, and where that gives no answer, nothing goes on. It forwards the bytes that
// were decided about, and no others. It passes on nothing that a client showed it for itself: no token, no cookie, no
// header; its credentials for an upstream are its own. A question that an upstream writes for its tools can narrow the
// permissions, never widen them, unless the configuration says so. It guesses nothing: a configuration with a mistake, or one
// that would let unnamed callers in, does not start.
package mcp
