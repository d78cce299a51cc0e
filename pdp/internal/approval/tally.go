package approval

import (
	"slices"
	"time"
)

// Tally is how many approval requests there were, by their outcome.
type Tally struct {
	Filed     int64 `json:"filed"`
	Approved  int64 `json:"approved"`
	Denied    int64 `json:"denied"`
	Expired   int64 `json:"expired"`
	Cancelled int64 `json:"cancelled"`
	// Used are the decisions that used an approval, and Continued are those that went on from a use.
	Used      int64 `json:"used"`
	Continued int64 `json:"continued,omitzero"`
	// Median and Longest are how long people took to approve or deny, in seconds, from the
	// filing to the record. They are nil if there was no vote.
	Median  *float64 `json:"median_seconds,omitzero"`
	Longest *float64 `json:"longest_seconds,omitzero"`
}

// Counter makes a tally. Its memory grows with the answers that people gave.
type Counter struct {
	tally Tally
	took  []time.Duration
}

// Count takes in a step of an approval request that was filed so long before.
func (c *Counter) Count(step string, took time.Duration) {
	switch step {
	case StepFiled:
		c.tally.Filed++
	case StepApproved:
		c.tally.Approved++
		c.took = append(c.took, took)
	case StepDenied:
		c.tally.Denied++
		c.took = append(c.took, took)
	case StepExpired:
		c.tally.Expired++
	case StepCancelled:
		c.tally.Cancelled++
	case StepUsed:
		c.tally.Used++
	case StepContinued:
		c.tally.Continued++
	}
}

// Tally is the result. The median of an even number is the lower of the two in the middle:
// a time until a vote.
func (c *Counter) Tally() Tally {
	if len(c.took) > 0 {
		slices.Sort(c.took)
		median, longest := c.took[(len(c.took)-1)/2].Seconds(), c.took[len(c.took)-1].Seconds()
		c.tally.Median, c.tally.Longest = &median, &longest
	}
	return c.tally
}
