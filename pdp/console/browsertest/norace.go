//go:build !race

package browsertest

// raceDetector is whether the tests were built with it.
const raceDetector = false
