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
