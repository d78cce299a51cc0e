package crowd

import "time"

// First has it be so long until somebody is asked about again, the first time. It is for before somebody hears.
func (c *Crowd) First(pause time.Duration) { c.first = pause }
