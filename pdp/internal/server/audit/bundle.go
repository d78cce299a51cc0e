package audit

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/report"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

// keptBundle is a bundle as it was when it decided.
type keptBundle struct {
	Digest string `json:"digest"`
	// Complete says if all files are here. The digest is that of all files in any case.
	Complete bool         `json:"complete"`
	Files    report.Files `json:"files"`
}

// InForce says which bundle answers, and which files are there.
type InForce struct {
	Digest string `json:"in_force"`
	// OnDisk differs if files were refused, or wait.
	OnDisk string `json:"on_disk"`
	// Unavailable are the tenants whose files do not load.
	Unavailable []string `json:"unavailable,omitzero"`
}

// inForce answers GET /v1/bundles.
func (a *Audit) inForce(c echo.Context, who auditor) error {
	now := a.InForce()
	if who.tenants != nil {
		now.Unavailable = slices.DeleteFunc(slices.Clone(now.Unavailable), func(tenant string) bool { return !slices.Contains(who.tenants, tenant) })
	}
	return door.WriteJSON(c, http.StatusOK, now)
}

// logBundle answers GET /v1/bundles/:digest.
func (a *Audit) logBundle(c echo.Context, who auditor) error {
	digest, err := door.PathValue(c, "digest")
	if err != nil {
		return err
	}
	_, done, err := a.reads(c, who)
	if err != nil {
		return err
	}
	defer done()
	digest = standardDigest(digest)
	of := a.Bundles.Files
	if who.tenants != nil { // what the files of others are is not theirs to say
		of = a.Bundles.Listed
	}
	files, err := of(digest)
	if errors.Is(err, segment.ErrNoSuchBundle) {
		return door.NewProblem(http.StatusNotFound,
			"no bundle is kept under this digest; the member bundle of a record has one, and in a path its / is "+
				"%2F, or _")
	}
	if err != nil {
		return err
	}
	kept := segment.VisibleFiles(files, who.tenants)
	return door.WriteJSON(c, http.StatusOK, keptBundle{Digest: digest, Complete: len(kept) == len(files), Files: kept})
}

// standardDigest writes a digest in standard base64. It also takes the base64 of URLs, padded or not.
func standardDigest(digest string) string {
	digest = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(digest, "="))
	return digest + "="
}
