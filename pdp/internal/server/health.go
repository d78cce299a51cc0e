package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// health are the routes that tell a proxy whether to send requests here.
type health struct {
	door *door.Door
	pdp  *pdp.PDP
	log  func() *logReadiness // nil without a decision log
	// cluster is nil without a cluster.
	cluster func() (*clusterReadiness, *stateReadiness)
	// keys says what is wrong with the API keys, beside those that count. It is nil without any.
	keys func() error
	// closed reports whether the file of capabilities could not be opened.
	closed bool
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
}

type bundleState struct {
	Digest      string    `json:"digest"`
	LoadedAt    time.Time `json:"loaded_at"`
	OnDisk      string    `json:"on_disk"`
	Later       []string  `json:"later,omitzero"`
	Unavailable []string  `json:"unavailable,omitzero"`
}

// refusedState is the bundle that was refused, with the first of its problems.
type refusedState struct {
	At       time.Time    `json:"at"`
	Tenants  []string     `json:"tenants,omitzero"`
	Problems pdp.Problems `json:"problems"`
	// More is how many problems more there are.
	More int `json:"more,omitzero"`
}

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
	if h.pdp.Bundle() == nil {
		return http.StatusServiceUnavailable, readiness{Status: "unavailable"}
	}
	status := h.pdp.Status()
	state := readiness{
		Status: "ready",
		Bundle: &bundleState{status.Digest, status.LoadedAt.UTC(), status.OnDisk, h.pdp.Later(), h.pdp.Bundle().Unavailable()},
	}
	if len(state.Bundle.Unavailable) > 0 {
		state.Status = "degraded"
	}
	if r := status.Refused; r != nil {
		state.Status = "degraded"
		first, more := firstOf(r.Problems)
		tenants, _ := firstOf(r.Tenants)
		state.Refused = &refusedState{r.At.UTC(), tenants, first, more}
	}
	if h.keys != nil {
		if damage := h.keys(); damage != nil {
			state.Status, state.Keys = "degraded", damage.Error()
		}
	}
	if h.closed {
		state.Status, state.Capabilities = "degraded", "closed"
	}
	if h.cluster != nil {
		state.Cluster, state.State = h.cluster()
		if state.State != nil || state.Cluster.Full || state.Cluster.Skew > mostSkew.Seconds() {
			state.Status = "degraded" // 503 would take all replicas out of the balancer at once
		}
	}
	unavailable := h.door.Stopping.Load()
	if h.log != nil {
		log := h.log()
		state.Log = log
		if !log.OK {
			state.Status = "degraded"
		}
		if w := log.Witnesses; w != nil && (w.Missing || w.Conflict || w.Suspects() > 0) {
			state.Status = "degraded"
			unavailable = unavailable || w.Missing && log.required
		}
		unavailable = unavailable || log.Full || !log.OK && log.Mode != decisionlog.BestEffort
	}
	if unavailable {
		state.Status = "unavailable"
		return http.StatusServiceUnavailable, state
	}
	return http.StatusOK, state
}

// prober is the caller of a request about health. A proxy asks as well, before it sends any other request here.
func (h *health) prober(c echo.Context) (auth.Caller, error) {
	caller, err := h.door.Recognize(c)
	if errors.Is(err, auth.ErrForwarded) {
		return auth.Caller{}, nil
	}
	return caller, err
}
