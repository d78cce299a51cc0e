//go:build !race

package arguments

const raceDetector = false
