package doctor

import (
	"errors"
	"fmt"
	"io/fs"

	"policy-service/pdp/approval"
)

// approvals is whether the requests for approval can be read, and how many wait.
func (x *exam) approvals() {
	if !x.exists {
		return
	}
	switch pending, err := approval.Look(x.data); {
	case errors.Is(err, fs.ErrNotExist):
		x.ok("approvals", "there are none yet; serve makes their file")
	case errors.Is(err, approval.ErrLocked):
		x.ok("approvals", "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		x.bites("approvals", fmt.Sprintf("they cannot be read: %v", err), "do this as the user that serve runs as, or chown the directory")
	case err != nil:
		x.bites("approvals", fmt.Sprintf("no server starts with them: %v", err), "copy the directory before anything else")
	default:
		x.ok("approvals", fmt.Sprintf("%d wait for a person, and no server is running on their file", pending))
	}
}
