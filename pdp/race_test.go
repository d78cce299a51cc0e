//go:build race

package pdp

// raceFactor is what the race detector costs, roughly.
const raceFactor = 8
