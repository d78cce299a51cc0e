//go:build !race

package pdp

const raceFactor = 1
