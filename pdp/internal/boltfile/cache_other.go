//go:build !linux

package boltfile

// DropCache can do nothing here.
func DropCache(string) {}
