// Package sdkpep makes an MCP server its own PEP, by OpenID's COAZ binding for MCP: it is receiving middleware for the
// official Go SDK. Before a request has its effect, the PDP is asked the questions of the mapping, and the request
// goes on only if each decision is a permit and each obligation is discharged. Start with [Middleware]:
//
//	server.AddReceivingMiddleware(sdkpep.Middleware(binding, pdp, nil))
//
// # Which bytes are decided on
//
// The SDK does not read strictly: of a member that comes twice the last one wins, numbers pass through float64, and
// bytes that are no UTF-8 are rewritten. The middleware stands behind that reading, so it decides on the parameters that
// the server's handlers get, and on no others; ambiguous ones (the arguments of a tool are handed on as they were sent)
// are refused. [Strict] is a handler for the front of the server that refuses all of it in each message, so
// that no gateway before the server has read another request than the server executes. Use both.
//
// # The caller
//
// The server validates the access token, as the binding wants it: signature, issuer, audience, expiry. It keeps the claims
// with [WithClaims] in the SDK's information about the token. A request without claims asks nothing and does not go on,
// unless a mapping of the operator's ([WithMapping]) needs none.
//
// # Limits of the package
//
// It lets nothing through that it does not know: a method without a mapping is denied. It says nothing of why the PDP
// denies but the sentence that the policy's author wrote for users. It asks nothing of its own about the items of a list:
// the binding asks about the list as a whole.
package sdkpep
