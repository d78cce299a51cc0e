package verify

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
)

// envelope is any line of an export that is no record, as package decisionlog specifies
// them: which members count, its word says.
type envelope struct {
	Word       string         `json:"export"`
	Format     int            `json:"format"`
	Form       string         `json:"form"`
	Origin     string         `json:"origin"`
	Checkpoint string         `json:"checkpoint"`
	Keys       []string       `json:"keys"`
	Filter     jsontext.Value `json:"filter"`
	Live       bool           `json:"live"`
	First      *int64         `json:"first"`
	Why        string         `json:"why"`
	Sequence   *int64         `json:"sequence"`
	Records    *int64         `json:"records"`
	Size       *int64         `json:"size"`
	Digest     string         `json:"digest"`
	SHA256     string         `json:"sha256"`
	More       bool           `json:"more"`
	Content    []byte         `json:"content"`
	List       string         `json:"list"`
	Part       int            `json:"part"`
	Parts      int            `json:"parts"`
	Witnessed  string         `json:"witnessed"`
	Old        string         `json:"old"`
	New        string         `json:"new"`
	Hashes     []tlog.Hash    `json:"hashes"`
}

func isEnvelope(line []byte) bool {
	return bytes.HasPrefix(line, []byte(format.ExportPrefix))
}

// parseEnvelope reads an envelope line; names twice and malformed JSON are refused.
func parseEnvelope(line []byte) (e envelope, err error) {
	if err = json.Unmarshal(line, &e); err != nil {
		return e, problem(Altered, -1, "it is no line of an export: %v", err)
	}
	return e, nil
}

// ofTenants says whether the filter is of somebody who sees the records of some tenants
// only.
func (e *envelope) ofTenants() bool {
	var filter struct {
		Tenants jsontext.Value `json:"tenants"`
	}
	return e.Filter != nil && json.Unmarshal(e.Filter, &filter) == nil && filter.Tenants != nil
}
