// Package wire has the messages between agents, gateways and people, as 000 and 001 print them, and the envelope that is around
// each where it does not travel on MCP.
//
// [ReadCall] reads an [ApprovalRequest] as a [Call], which makes the messages that ask people about the call of a tool, and
// compares the arguments that come back ([Call.Changed]). [ReadRespond] reads a decision that comes as a message of its own.
// [ReadToolRequest] and [ReadFulfilment] read a request for a tool and the call that fulfils it, [ReadCapabilityRequest] a
// request for a capability, and [ReadAccessPolicy] a policy by which a participant opens its tools to others.
//
// The package is pure. It opens no connection, stores nothing and reads no clock, it decides nothing, and it knows
// neither our server nor the store of approvals: a caller gives it plain values and sends the messages itself.
package wire
