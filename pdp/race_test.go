//go:build race

package pdp

// raceDetector is whether the tests were built with it.
const raceDetector = true
