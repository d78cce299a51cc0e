// Package wire has the messages between agents, gateways and people, as 000 and 001 print them: those of JSON-RPC that ask
// people to approve a tool call, with the comparison of what comes back with what was shown, those by which somebody calls
// a tool for another, and the envelope that is around each where it does not travel on MCP.
//
// [ReadCall] reads an [ApprovalRequest] as a [Call], and a Call makes the messages: [Call.AuthorizationRequired]
// answers the tool call that waits, [Call.Notification] tells a client that a call waits, and [Call.Elicitation] asks
// a person by one of the forms that [Call.Form] makes. [AuthorizationDenied] answers a call that will not happen.
// [Call.Changed] compares the arguments that a person reviewed with those that were shown; what the person decided is
// read by [evaluation.DecodeResponse]. [ReadRespond] reads it where it comes as a message of its own, and [Announced] makes
// of a notification of the PDP what a client is told.
//
// [Welcome], [Pending] and [Blocked] tell participants what they may do, what others request of them, and what was refused.
// [ReadToolRequest] and [ReadFulfilment] read a request for a tool and the call that fulfils it, and [Requested] and
// [Fulfilled] are their results. [ReadAccessPolicy] reads a policy by which somebody says who may use their tools. Of 001's
// capabilities there is no form here: what has no type is a payload like any other to an [Envelope].
//
// The package is pure. It opens no connection, stores nothing and reads no clock, it decides nothing, and it knows
// neither our server nor the store of approvals: a caller gives it plain values and sends the messages itself.
package wire
