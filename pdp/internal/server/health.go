package server

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// health are the routes that tell a proxy whether to send requests here.
type health struct {
	door   *door.Door
	opened func() []any
}

// Routes registers the routes.
func (h *health) Routes(route registrar) {
	route("/livez", h.livez, http.MethodGet, http.MethodHead)
	route("/readyz", h.readyz, http.MethodGet, http.MethodHead)
}

// ready is a part of a server that may keep it from answering, or from answering as it should.
type ready interface {
	// Ready adds the part's members to a readiness, and says there if the part is degraded or unavailable.
	Ready(is *readiness)
}

// readiness is the body of /readyz. Monitoring of others reads it: members may be added, never renamed.
type readiness struct {
	Status  string        `json:"status"`
	Bundle  *bundleState  `json:"bundle"`
	Refused *refusedState `json:"refused"`
	// Log is null without a decision log.
	Log *logReadiness `json:"log"`
	// Cluster is absent without one, and State if the state in etcd can be used.
	Cluster *clusterReadiness `json:"cluster,omitzero"`
	State   *stateReadiness   `json:"state,omitzero"`
	// Keys is what is wrong with the API keys, absent if nothing is.
	Keys string `json:"api_keys,omitzero"`
	// Capabilities is closed if their file could not be opened.
	Capabilities string `json:"capabilities,omitzero"`

	unavailable bool
}

// degrade says that something is not as it should be, although requests are answered.
func (r *readiness) degrade() { r.Status = "degraded" }

// mostProblems are quoted at once, in the log and in /readyz. The tenants together may have made many, and each is a
// line.
const mostProblems = 100

func firstOf[T any](all []T) (first []T, more int) {
	first = all[:min(len(all), mostProblems)]
	return first, len(all) - len(first)
}

// livez says that the process runs and answers, nothing about what it answers.
func (h *health) livez(c echo.Context) error {
	if _, err := h.prober(c); err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(`{"status":"ok"}`))
}

// readyz says whether to send requests here: not if the server stops, nor without a bundle. An old bundle that answers
// is better than none, so after a refused load the answer is still 200.
func (h *health) readyz(c echo.Context) error {
	caller, err := h.prober(c)
	if err != nil {
		return err
	}
	code, state := h.readiness()
	if caller = caller.Where(auth.Explain); caller.AllTenants && caller.May(auth.Explain) {
		return door.WriteJSON(c, code, state)
	}
	// Digests and file names are no stranger's business.
	return door.WriteJSON(c, code, map[string]string{"status": state.Status})
}

func (h *health) readiness() (int, readiness) {
	is := readiness{Status: "ready", unavailable: h.door.Stopping.Load()}
	for _, one := range h.opened() {
		if one, says := one.(ready); says {
			one.Ready(&is)
		}
	}
	if is.unavailable {
		is.Status = "unavailable"
		return http.StatusServiceUnavailable, is
	}
	return http.StatusOK, is
}

// prober is the caller of a request about health. A proxy asks as well, before it sends any other request here.
func (h *health) prober(c echo.Context) (auth.Caller, error) {
	caller, err := h.door.Recognize(c)
	if errors.Is(err, auth.ErrForwarded) {
		return auth.Caller{}, nil
	}
	return caller, err
}
