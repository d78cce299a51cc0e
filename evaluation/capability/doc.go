// Package capability lets a gateway check by itself that a call of a tool is covered by a capability, and lets an agent
// prove that it holds one. Start with [NewVerifier] and [Verifier.Check], or with [NewHolder] and [Holder.Prove].
//
// A capability is a token, a JWT that the service signs: who may call which tools of one server, with which arguments,
// until when. It is bound to a public key of the holder. Each call brings a proof, signed with that key, over the
// token's id, the verifier, the tool and a hash of the arguments. So a token that was stolen is worth nothing, and a
// proof is worth one call.
//
// A token is a list of layers, and a call is admitted when each of them admits it: to add a layer can only narrow. What
// a layer says of arguments is closed: an argument that it does not name refuses the call, unless it says otherwise.
//
// The package asks no service. [Verifier.Check] does not know which proofs were seen before, which tokens were revoked, or how
// often one was used: the service does, and the check is a filter in front of it. A gateway that asks no service has an
// [OfflineVerifier], which remembers proofs and looks into the status lists of the service.
package capability
