//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package verify

// lockShared cannot say here whether a server holds the log: stop it first.
func lockShared(string) (unlock func(), free bool, err error) { return func() {}, true, nil }
