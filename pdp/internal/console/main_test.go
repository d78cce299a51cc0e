package console_test

import (
	"os"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
)

// TestMain lets tests of this package open pages in a browser.
func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }
