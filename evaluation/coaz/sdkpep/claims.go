package sdkpep

import (
	"github.com/modelcontextprotocol/go-sdk/auth"

	"policy-service/evaluation"
)

// claimsKey is where the claims are in [auth.TokenInfo.Extra].
const claimsKey = "policy-service/evaluation/coaz/sdkpep.claims"

// WithClaims is info with the claims of the token, exactly as the token has them: the payload of the JWT, read by
// [evaluation.ParseWithNulls]. It is for the server's [auth.TokenVerifier], after it has validated the token.
func WithClaims(info auth.TokenInfo, claims evaluation.Object) *auth.TokenInfo {
	extra := make(map[string]any, len(info.Extra)+1)
	for name, v := range info.Extra {
		extra[name] = v
	}
	extra[claimsKey] = claims
	info.Extra = extra
	return &info
}

// claimsOf are the claims of the token of a request, none if nobody kept them.
func claimsOf(info *auth.TokenInfo) evaluation.Object {
	if info == nil {
		return evaluation.Object{}
	}
	claims, _ := info.Extra[claimsKey].(evaluation.Object)
	return claims
}
