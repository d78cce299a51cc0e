package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"policy-service/pdp/approval"
	"policy-service/pdp/server"
)

// approvals is whether the approval requests can be read, and how many wait.
func (x *exam) approvals() {
	if !x.exists {
		return
	}
	switch pending, behind, err := server.Approvals(x.ctx, x.data, x.reader); {
	case errors.Is(err, fs.ErrNotExist):
		x.ok("approvals", "there are none yet; serve makes their file")
	case errors.Is(err, approval.ErrLocked):
		x.ok("approvals", "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		x.bites("approvals", fmt.Sprintf("they cannot be read: %v", err), "do this as the user that serve runs as, or chown the directory")
	case err != nil:
		x.bites("approvals", fmt.Sprintf("no server starts with them: %v", err), "copy the directory before anything else")
	case len(behind) > 0:
		for _, id := range slices.Sorted(maps.Keys(behind)) {
			x.bites("approvals", fmt.Sprintf("their file is older than the log: by that, %s is %s", id, behind[id]), "serve goes by the log, and says so there; find out who put an older approvals.db back")
		}
	default:
		x.ok("approvals", fmt.Sprintf("%d wait for a person, and no server is running on their file", pending))
	}
}
