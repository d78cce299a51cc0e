//go:build !race

package pdp

const raceDetector = false
