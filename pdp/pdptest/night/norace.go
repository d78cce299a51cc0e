//go:build !race

package night

// Race is whether the race detector is built in.
const Race = false
