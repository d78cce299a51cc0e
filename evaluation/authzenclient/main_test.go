package authzenclient_test

import (
	"fmt"
	"os"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/policies"
)

// TestMain starts a server on the starter bundle for the examples, and sends what they ask of 127.0.0.1:8180, the address
// of `make run`, to its address.
func TestMain(m *testing.M) {
	addr, stop, err := pdptest.Serve(pdp.FS(policies.Starter()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pdptest.Redirect("127.0.0.1:8180", addr)
	code := m.Run()
	stop()
	os.Exit(code)
}
