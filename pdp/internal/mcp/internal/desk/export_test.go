package desk

import "time"

// Turn has each be looked at once in so long, where each is looked at by itself. It is for before somebody follows.
func (d *Desk) Turn(each time.Duration) { d.turn = each }
