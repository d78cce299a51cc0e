// Package auth makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/server/auth.
package auth

import (
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
)

type (
	Grant          = auth.Grant
	JWTIssuer      = auth.JWTIssuer
	KeySpec        = keys.Spec
	MTLSRule       = auth.MTLSRule
	Permission     = auth.Permission
	Principal      = auth.Principal
	PrincipalClaim = auth.PrincipalClaim
)

const (
	Approve         = auth.Approve
	Backup          = auth.Backup
	Capability      = auth.Capability
	CapabilityAdmin = auth.CapabilityAdmin
	Decide          = auth.Decide
	Explain         = auth.Explain
	KeyFile         = keys.File
	LogAdmin        = auth.LogAdmin
	LogRead         = auth.LogRead
	Relay           = auth.Relay
	Request         = auth.Request
	Search          = auth.Search
)

var (
	ErrKeysAway    = keys.ErrAway
	OpenKeys       = keys.Open
	ParsePrincipal = auth.ParsePrincipal
)
