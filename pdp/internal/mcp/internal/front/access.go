package front

import (
	"log/slog"
	"net/http"

	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// noAccess is the refusal of a tool_access_policy. An access policy stays the proposal of a participant until the operator of
// the PDP makes policy of it.
const noAccess = "the gateway takes no access policies, and nothing has changed; ask who operates it to run: policy-service access import FILE --policies DIR"

// refuseAccess refuses an access policy over HTTP. A notification has no answer, but its status may have an error in its body.
func (g *Front) refuseAccess(w http.ResponseWriter, who *identity.Principal) {
	release, limit, after := g.flow.Admit(who, "", false)
	if limit != "" {
		g.tooMany(w, after)
		return
	}
	defer release()
	g.noteAccess(who)
	g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, noAccess)
}

// noteAccess logs the refusal of an access policy. Over the standard streams the client gets no refusal.
func (g *Front) noteAccess(who *identity.Principal) {
	g.o.Logger.Info("refused", slog.Group("", "method", wire.MethodAccess, "code", rpc.InvalidRequest, "why", noAccess), "principal", who.Key)
}
