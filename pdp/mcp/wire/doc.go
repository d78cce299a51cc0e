// Package wire has the messages between agents, gateways and people, as 000 and 001 print them: those of JSON-RPC that ask
// people to approve a tool call, with the comparison of the arguments that come back with those that were shown, those by which a participant calls
// a tool for another, and the envelope that is around each where it does not travel on MCP.
//
// [ReadCall] reads an [ApprovalRequest] as a [Call], and a Call makes the messages: [Call.AuthorizationRequired]
// answers the tool call that waits, [Call.Notification] informs a client of a call that waits, and [Call.Elicitation] asks
// a person by one of the forms that [Call.Form] makes. [AuthorizationDenied] answers a call that will not happen.
// [Call.Changed] compares the arguments that a person reviewed with those that were shown; the decision is
// read by [evaluation.DecodeResponse]. [ReadRespond] reads it where it comes as a message of its own, and [Announced] makes
// a notification to a client of one by the PDP.
//
// [Welcome], [Pending] and [Blocked] inform participants of their rights, of requests by others, and of refusals.
// [ReadToolRequest] and [ReadFulfilment] read a request for a tool and the call that fulfils it, and [Requested] and
// [Fulfilled] are their results. [ReadAccessPolicy] reads a policy by which a participant opens its tools to others. Of 001's
// capabilities there is no form here: a payload without a type here is one like any other to an [Envelope].
//
// The package is pure. It opens no connection, stores nothing and reads no clock, it decides nothing, and it knows
// neither our server nor the store of approvals: a caller gives it plain values and sends the messages itself.
package wire
