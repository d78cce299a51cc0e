package sdkpep

import (
	"github.com/modelcontextprotocol/go-sdk/auth"

	"policy-service/evaluation"
)

// claimsKey is where the claims are in [auth.TokenInfo.Extra].
const claimsKey = "policy-service/evaluation/coaz/sdkpep.claims"

// WithClaims is info with the claims of the token, exactly as the token has them: the payload of the JWT, read by
// [evaluation.ParseWithNulls]. It is for the server's [auth.TokenVerifier], after it has validated the token.
//
// An info that names no user is of issuer, subject and client: by the user the SDK keeps everybody else out of a session,
// and of an info without one it keeps no caller out.
func WithClaims(info auth.TokenInfo, claims evaluation.Object) *auth.TokenInfo {
	if info.UserID == "" {
		info.UserID = principal(claims)
	}
	extra := make(map[string]any, len(info.Extra)+1)
	for name, v := range info.Extra {
		extra[name] = v
	}
	extra[claimsKey] = claims
	info.Extra = extra
	return &info
}

// principal is the subject of a token.
func principal(claims evaluation.Object) string {
	var who []byte
	for _, name := range [...]string{"iss", "sub", "client_id"} {
		v, _ := claims.Get(name)
		text, _ := v.MarshalJSON() // it never fails; a claim that is not there is null
		who = append(append(who, text...), ' ')
	}
	return string(who)
}

// claimsOf are the claims of the token of a request, none if they were not kept.
func claimsOf(info *auth.TokenInfo) evaluation.Object {
	if info == nil {
		return evaluation.Object{}
	}
	claims, _ := info.Extra[claimsKey].(evaluation.Object)
	return claims
}
