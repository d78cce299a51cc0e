// Package identity finds out for whom an MCP request is: by its bearer token alone, or by what an operator fixed for a
// gateway that only one person can reach.
//
// Begin with [Principal].
package identity

import (
	"time"

	"policy-service/evaluation"
)

// Principal is whom a request is for. Everything that is kept for somebody is kept by Key.
type Principal struct {
	// Issuer, Subject and Client are the claims iss, that which names the subject, and client_id. Client may be "".
	Issuer, Subject, Client string
	// Key is a digest of the three, and of nothing else: the same sub of another issuer is somebody else.
	Key string
	// Person is the protocol member context.person of questions: who the person is, whatever policies call him. "" if the
	// token names no person.
	Person string
	// Tenant is where questions are asked. It is never a claim.
	Tenant string
	// User is the entity of the subject: its type and id as the issuer's entry in the configuration has them. Agent is that
	// of the client, and the zero value without a client_id.
	User, Agent Entity
	// Claims are all claims of the token as they stand in it.
	Claims evaluation.Object
	// Token is the access token itself, and Expires when it ends; "" and zero for a fixed identity.
	Token   string
	Expires time.Time
}

// Entity is a type and an id.
type Entity struct{ Type, ID string }
