// Package backup makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/backup.
package backup

import "policy-service/pdp/internal/backup"

type (
	End    = backup.End
	Head   = backup.Head
	Source = backup.Source
)

const Format = backup.Format

var Write = backup.Write
