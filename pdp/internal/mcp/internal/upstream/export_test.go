package upstream

import "time"

// SetTimeout changes the Timeout of an upstream for what begins from now on, in sessions that are open too.
func SetTimeout(u Upstream, d time.Duration) {
	switch u := u.(type) {
	case *httpUpstream:
		u.options.Timeout = d
	case *command:
		u.o.Timeout = d
	}
}
