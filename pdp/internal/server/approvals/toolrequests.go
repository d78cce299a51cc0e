package approvals

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/door"
)

// toolRequestsPath is where a gateway keeps the requests for tools that its other replicas can find there. Each gateway has its
// own, by its credential.
const toolRequestsPath = "/v1/tools/requests"

// longestToolRequestID bounds an id. It has letters, digits, - and _.
const longestToolRequestID = 64

// toolRequest is one of them as it is answered.
type toolRequest struct {
	ID       string `json:"id"`
	Revision string `json:"revision"`
	Open     bool   `json:"open"`
	// Seconds is how long it is kept.
	Seconds int64  `json:"seconds"`
	Text    string `json:"text,omitzero"`
}

func (a *Approvals) writeToolRequest(c echo.Context, id string, r approval.ToolRequest, text string) error {
	left := max(0, int64(r.Until.Sub(a.Door.Options.Now())/time.Second))
	return write(c, toolRequest{ID: id, Revision: strconv.FormatUint(r.Revision, 10), Open: r.Open, Seconds: left, Text: text})
}

// openToolRequests answers GET /v1/tools/requests.
func (a *Approvals) openToolRequests(c echo.Context, r door.Admitted) error {
	ids, err := a.Broker.Store.OpenToolRequests(r.Tenant, r.Caller.Name)
	if err != nil {
		return err
	}
	return write(c, map[string][]string{"open": append([]string{}, ids...)})
}

// seeToolRequest answers GET /v1/tools/requests/:id.
func (a *Approvals) seeToolRequest(c echo.Context, r door.Admitted) error {
	id := c.Param("id")
	one, found, err := a.Broker.Store.ToolRequest(r.Tenant, r.Caller.Name, id)
	if err != nil {
		return err
	}
	if !found || !isToolRequestID(id) {
		return door.NewProblem(http.StatusNotFound, "this gateway keeps no request for a tool of that id here, or its time is up")
	}
	return a.writeToolRequest(c, id, one, one.Text)
}

// keepToolRequest answers POST /v1/tools/requests/:id.
func (a *Approvals) keepToolRequest(c echo.Context, r door.Admitted) error {
	id := c.Param("id")
	if !isToolRequestID(id) {
		return door.NewProblem(http.StatusBadRequest, "the id has up to "+strconv.Itoa(longestToolRequestID)+" letters, digits, - and _")
	}
	said, err := evaluation.DecodeToolRequest(r.Body, a.Door.Options.Limits)
	if err != nil {
		return err
	}
	ctx, cancel := a.Door.Within(c)
	defer cancel()
	kept, err := a.Broker.Store.KeepToolRequest(ctx, r.Tenant, r.Caller.Name, id, approval.ToolRequest{
		Open: said.Open, Text: said.Text, Until: a.Door.Options.Now().Add(said.For), Revision: said.Revision,
	})
	if err != nil {
		return err
	}
	return a.writeToolRequest(c, id, kept, "")
}

func isToolRequestID(id string) bool {
	for _, c := range []byte(id) {
		if c != '-' && c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return id != "" && len(id) <= longestToolRequestID
}
