package authzenclient

import "time"

// Patiently is for a real PDP, which a test waits for however long the machine makes it: a
// minute is for one that hangs.
func Patiently() Option {
	return func(c *Client) error {
		c.timeout, c.receipts.within = time.Minute, time.Minute
		return nil
	}
}

// Jitter replaces the source, in [0,1), of pauses that differ.
func Jitter(source func() float64) Option {
	return func(c *Client) error { c.clock.jitter = source; return nil }
}

// MaxPages bounds the pages of a search, and how many in a row may be empty.
func MaxPages(most, empty int) Option {
	return func(c *Client) error { c.pages.most, c.pages.idle = most, empty; return nil }
}
