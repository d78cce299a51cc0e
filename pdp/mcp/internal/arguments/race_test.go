//go:build race

package arguments

// raceDetector is whether the tests were built with it.
const raceDetector = true
