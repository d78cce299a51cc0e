//go:build !linux

package cli

// StepAside has other programs go first where that is known to be possible.
func StepAside() {}
