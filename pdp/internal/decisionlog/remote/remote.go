// Package remote reads the decision log of a running server over HTTP, as an
// auditor does from a desk. Start with [New]; what it returns reads like a
// [segment.Snapshot], and also follows the log, redacts records and rotates
// the key where the credential permits it.
//
// It trusts nothing that a server sends: it checks a record against its hash, the files of
// a bundle against their digest, and an export against the digest in its last line. It does
// not check signatures: policy-service log verify does, on an export.
package remote

import "policy-service/pdp/internal/httpclient"

// Log is the decision log of one server.
type Log struct{ server *httpclient.Server }

const (
	// attempts is how often in a row something may fail before it is given up.
	attempts = 5

	smallBody  = 1 << 20   // keys, checkpoints
	recordBody = 64 << 20  // a page, a record with its receipts, a proof
	bundleBody = 256 << 20 // all files of a bundle, or a report
	sampleBody = 1 << 30   // records and bundles
)

// New makes a reader of the log at a base URL, https or on this machine also http.
// Nothing is sent yet.
func New(baseURL string, o httpclient.Options) (*Log, error) {
	server, err := httpclient.New(baseURL, o)
	if err != nil {
		return nil, err
	}
	return &Log{server}, nil
}

// Close closes the connections that are kept.
func (l *Log) Close() { l.server.Close() }
