package doctor

import (
	"context"
	"errors"
	"io/fs"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/listener"
)

// approvals are the approval requests of a data directory.
type approvals struct {
	data directory
	log  *decisionLog
}

// Findings looks whether the approval requests can be read, and how many wait.
func (a approvals) Findings(context.Context) (found finding.List) {
	const check = "approvals"
	if !a.data.exists() {
		return nil
	}
	switch pending, err := broker.Look(a.data.path, a.log.reader); {
	case errors.Is(err, fs.ErrNotExist):
		found.OK(check, "there are none yet; serve makes their file")
	case errors.Is(err, approval.ErrLocked):
		found.OK(check, "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		found.Bites(check, asServe, "they cannot be read: %v", err)
	case err != nil:
		found.Bites(check, "copy the directory before anything else", "no server starts with them: %v", err)
	default:
		found.OK(check, "%d wait for a person, and no server is running on their file", pending)
	}
	return found
}

// capabilities are the capabilities of a data directory.
type capabilities struct {
	*server.Config
	data directory
	log  *decisionLog
}

// Findings looks whether the capabilities can be read, and whether their tokens could be signed.
func (c capabilities) Findings(context.Context) (found finding.List) {
	if !c.data.exists() {
		return nil
	}
	key, err := broker.Key.Read(c.Data)
	if err != nil || key == nil {
		return nil // [apiKeys] and [approvals] say so
	}
	var size func() uint64
	if c.log.reader != nil && !c.log.running() {
		size = c.log.reader.Size
	}
	const check = "capabilities"
	live, err := capability.Look(c.Data, key, size)
	switch unsigned := c.PublicURL == "" && !listener.IsLoopback(c.Listen); {
	case errors.Is(err, fs.ErrNotExist):
		found.OK(check, "there are none yet; serve makes their file")
	case errors.Is(err, capability.ErrLocked):
		found.OK(check, "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		found.Bites(check, asServe, "they cannot be read: %v", err)
	case err != nil:
		found.Bites(check, "copy the directory before anything else", "requests that show one are answered with 503: %v", err)
	case unsigned && live > 0:
		found.Bites(check, "set public_url, to what it was when they were granted", "%d are live, and their tokens do not count: without public_url the service does not know its own URL", live)
	case unsigned:
		found.OK(check, "none is granted: tokens are signed once public_url is set")
	default:
		found.OK(check, "%d are live, and no server is running on their file", live)
	}
	return found
}
