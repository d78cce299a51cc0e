//go:build race

package main

// raceFactor is what the race detector costs in memory and time, roughly.
const raceFactor = 8
