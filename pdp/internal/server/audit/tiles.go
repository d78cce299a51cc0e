package audit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// The tree of the log as C2SP tlog-tiles has it: the newest checkpoint, and the tiles of hashes that it covers. Its prefix
// is /v1/log. There are no bundles of entries: an entry of C2SP has at most 65,535 bytes and stays for ever, and a record
// may be longer, or be redacted.

// Tiles says whose requests for the tree are answered.
type Tiles string

// Callers with log.read for all tenants may read it, or everybody.
const (
	CredentialTiles Tiles = "credential"
	PublicTiles     Tiles = "public"
)

const (
	checkpointPath = "/v1/log/checkpoint"
	tilePath       = "/v1/log/tile/:level/*" // INDEX may have slashes
)

// treeRoutes registers the routes of the tree. Where it is public, no credential is asked for, and no Host.
func (a *Audit) treeRoutes(route func(path string, handle echo.HandlerFunc, methods ...string)) {
	checkpoint := a.admit(door.Need{Permission: auth.LogRead, Parameters: door.NoParameters}, a.logCheckpoint)
	tile := a.admit(door.Need{
		Permission: auth.LogRead, Parameters: door.NoParameters,
		// The hashes are those of all tenants.
		AllTenants: "this needs the permission log.read on all tenants; ask the operator for a credential that has it",
	}, func(c echo.Context, who auditor) error {
		_, done, err := a.reads(c, who)
		if err != nil {
			return err
		}
		defer done()
		return a.tile(c, "private")
	})
	if a.Tiles == PublicTiles {
		checkpoint = a.stranger(a.publicCheckpoint)
		tile = a.stranger(func(c echo.Context) error { return a.tile(c, "public") })
	}
	route(checkpointPath, checkpoint, http.MethodGet, http.MethodHead)
	route(tilePath, tile, http.MethodGet, http.MethodHead)
}

// stranger lets in everybody, one at a time; addresses take turns. The time until the answer begins is charged.
func (a *Audit) stranger(handle echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if a.Log == nil {
			return noLog()
		}
		address, err := a.Door.Stranger(c)
		if err != nil {
			return err
		}
		_, done, err := a.turn(c, &a.Strangers, address)
		if err != nil {
			return err
		}
		defer done()
		begun := time.Now()
		c.Response().Before(func() { a.Door.ChargeStranger(address, time.Since(begun)) })
		return handle(c)
	}
}

// publicCheckpoint answers the checkpoint that is there. To make one for a stranger would cost a signature.
func (a *Audit) publicCheckpoint(c echo.Context) error {
	newest, err := a.stored()
	if err != nil {
		return checkpointProblem(err)
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=1")
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, newest.Note)
}

// stored is the checkpoint that is there to be shown: by the rules of the witnesses, or else the newest one.
func (a *Audit) stored() (segment.Checkpoint, error) {
	if a.Cosigned != nil {
		return a.Cosigned()
	}
	return a.Log.Signed()
}

// checkpoint is the checkpoint of all records there are, made if need be. Witnesses make theirs at their own pace.
func (a *Audit) checkpoint(ctx context.Context) ([]byte, error) {
	if a.Cosigned == nil {
		a.sign(ctx)
	}
	newest, err := a.stored()
	return newest.Note, checkpointProblem(err)
}

// tile answers GET /v1/log/tile/LEVEL/INDEX[.p/WIDTH]. A tile never changes: copies may be kept for good, by anybody or by
// the reader alone.
func (a *Audit) tile(c echo.Context, copies string) error {
	tile, ok := c2sp.ParseTile(c.Param("level") + "/" + c.Param("*"))
	if !ok || c.Request().URL.RawPath != "" { // an address has nothing to be escaped
		return noSuchTile()
	}
	hashes, err := a.Log.Tile(tile)
	if errors.Is(err, segment.ErrNotFound) {
		return noSuchTile()
	}
	if err != nil {
		return logProblem(err)
	}
	c.Response().Header().Set(echo.HeaderCacheControl, copies+", max-age=31536000, immutable")
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, hashes)
}

func noSuchTile() error {
	return door.NewProblem(http.StatusNotFound,
		"no such tile, or none that the newest checkpoint covers; ask for LEVEL/INDEX as C2SP tlog-tiles writes them, with "+
			".p/WIDTH for a tile that is not full")
}
