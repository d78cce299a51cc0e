// Package auth makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/server/auth.
package auth

import "policy-service/pdp/internal/server/auth"

type (
	Grant          = auth.Grant
	JWTIssuer      = auth.JWTIssuer
	KeySpec        = auth.KeySpec
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
	KeyFile         = auth.KeyFile
	LogAdmin        = auth.LogAdmin
	LogRead         = auth.LogRead
	Relay           = auth.Relay
	Request         = auth.Request
	Search          = auth.Search
)

var (
	ErrKeysAway    = auth.ErrKeysAway
	OpenKeys       = auth.OpenKeys
	ParsePrincipal = auth.ParsePrincipal
)
