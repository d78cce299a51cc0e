package auth

import "context"

// Verify says who a token is of that came by itself, to a server without a console.
func (j *JWT) Verify(ctx context.Context, token string) (Caller, error) {
	return j.bearer(ctx, token, "", nil)
}
