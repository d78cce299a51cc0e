package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
)

// otherGateway is a gateway of somebody else, in fifty lines: it stands before the tools of server b, asks no service about
// a call, and lets through what a capability covers. The page pdp/capability/OFFLINE.md shows it.
func otherGateway(
	ctx context.Context, client *authzenclient.Client, issuer, name string, now func() time.Time, tools http.Handler,
) (http.Handler, error) {
	verifier, err := capability.NewOfflineVerifier(capability.OfflineOptions{
		Options: capability.Options{
			Issuer: issuer, Audience: []string{name}, Servers: []string{"b"}, Keys: client.Keys(), Now: now,
		},
		Status: client.StatusLists(ctx),
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Token, Proof, Holder, Tool string }
		if err := json.Unmarshal([]byte(r.Header.Get("X-Call")), &call); err != nil {
			http.Error(w, "X-Call is no JSON", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		arguments, bad := evaluation.ParseWithNulls(body, evaluation.DefaultLimits())
		if err = errors.Join(err, bad); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		checked, err := verifier.Verify(r.Context(), capability.Call{
			Token: call.Token, Proof: call.Proof, Holder: evaluation.Ref{Type: "agent", ID: call.Holder}, Tool: call.Tool, Arguments: arguments,
		})
		var refusal *capability.Refusal
		switch {
		case errors.As(err, &refusal):
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(refusal.RPC(nil))
		case err != nil:
			http.Error(w, "the capability cannot be verified now", http.StatusServiceUnavailable)
		default:
			w.Header().Set("X-Nonce", checked.Nonce)
			tools.ServeHTTP(w, r)
		}
	}), nil
}
