//go:build race

package browsertest

const raceDetector = true
