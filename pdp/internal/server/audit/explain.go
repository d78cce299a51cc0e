package audit

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// Explain explains a recorded decision by the files of its bundle. bytes is how much of a bundle had to be compiled for
// that; it is 0 if the bundle was at hand.
type Explain func(ctx context.Context, r *record.Recorded, bundles *segment.Bundles) (explained any, bytes int, err error)

// The errors of [Explain] that a client can do something about.
var (
	// ErrNotAlone is for a bundle that is too large to be compiled beside the one in force.
	ErrNotAlone = errors.New("the bundle of then is too large to be compiled beside the one in force")
	// ErrOtherwise is for files and requests that this program reads otherwise than the one that decided.
	ErrOtherwise = errors.New("what is on record cannot be decided again")
)

// compiledForOne is how many bytes of a bundle cost as much as one request if they have to be compiled.
const compiledForOne = 16 << 10

// explain answers GET /v1/decisions/:id/explain. The caller needs the permission explain in the tenant of the record.
func (a *Audit) explain(ctx context.Context, c echo.Context, want asked) error {
	r, err := a.explicable(want)
	if err != nil {
		return err
	}
	if tenant := r.Tenant; !want.Also.Serves(tenant) {
		return door.Lacks(auth.Explain)
	}
	explained, bytes, err := a.Explain(ctx, r, a.Bundles)
	a.Door.Charge(want.Caller, bytes/compiledForOne)
	switch {
	case errors.Is(err, segment.ErrNoSuchBundle):
		return door.NewProblem(http.StatusGone,
			"the files of the bundle that decided are not kept here; the member bundle of the record has its digest, and "+
				"the repository of the policies may have the files")
	case errors.Is(err, record.ErrNoRequest):
		return door.NewProblem(http.StatusGone,
			"a part of the request is gone, or was never one; GET /v1/decisions/{id} has what is left of it")
	case errors.Is(err, ErrNotAlone), errors.Is(err, ErrOtherwise):
		return door.NewProblem(http.StatusConflict,
			err.Error()+"; take the files of then with policy-service log show --bundle, and ask policy-service eval --record")
	case err != nil:
		return noTimeFor(err, "there was no time to explain this; ask again in a moment")
	}
	return door.WriteJSON(c, http.StatusOK, explained)
}

// explicable is the decision of the record that is asked for.
func (a *Audit) explicable(want asked) (*record.Recorded, error) {
	r, err := a.Log.Recorded(want.record.Line)
	switch {
	case err != nil:
		return nil, logProblem(err)
	case r.Kind == format.KindPossible:
		return nil, door.NewProblem(http.StatusConflict,
			"this record is of a question about what is possible, and nothing was decided; only a decision can be explained")
	case r.Kind != format.KindDecision || r.Answer() == "":
		return nil, door.NewProblem(http.StatusConflict,
			"this record holds no decision, but something of another kind, such as a search or an event; only a decision can be explained")
	}
	return &r, nil
}
