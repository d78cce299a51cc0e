// Package wire has the forms in which people approve a tool call by MCP: the messages of JSON-RPC that ask for the
// approval, and the comparison of what comes back with what was shown.
//
// [ReadCall] reads an [ApprovalRequest] as a [Call], and a Call makes the messages: [Call.AuthorizationRequired]
// answers the tool call that waits, [Call.Notification] tells a client that a call waits, and [Call.Elicitation] asks
// a person by one of the forms that [Call.Form] makes. [AuthorizationDenied] answers a call that will not happen.
// [Call.Changed] compares the arguments that a person reviewed with those that were shown; what the person decided is
// read by [evaluation.DecodeResponse].
//
// The package is pure. It opens no connection, stores nothing and reads no clock, it decides nothing, and it knows
// neither our server nor the store of approvals: a caller gives it plain values and sends the messages itself.
package wire
