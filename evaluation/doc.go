// Package evaluation is the vocabulary of the service: requests,
// answers, and how both look on the wire. Start with [Request] and
// [Decision]; bodies become Requests through [DecodeAuthZEN] and
// [DecodeNative], and Decisions become bodies through [Shape.Answer].
//
// One request has two wire shapes:
//
//	native (POST /v1/authorize)     AuthZEN (POST /access/v1/evaluation)
//	tenant_id                       the tenant in the URL
//	actor.actor_type                subject.type
//	actor.actor_id                  subject.id
//	actor, its other members        subject.properties
//	action                          action.name
//	resource.type, resource.id      resource.type, resource.id
//	resource.labels                 resource.properties.labels
//	context                         context
//	purpose                         context.purpose
//
// Decoding is strict where two readers could differ (duplicate members, invalid
// UTF-8, lone surrogates, wrong types) and lenient with unknown members:
// unknown members are ignored, and null is absent. Everything is bounded by
// [Limits], and every refusal is an [*Error] with a JSON Pointer.
//
// A [Receipt] is a PEP's report about the obligations of a decision.
// [DecodeReceipts] reads the body that holds it.
//
// The package does no work: it knows no HTTP, no Cedar, no storage and no
// telemetry, so that a policy enforcement point can import it.
package evaluation
