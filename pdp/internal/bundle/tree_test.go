package bundle_test

import (
	"testing"

	"policy-service/pdp/pdptest/filetree"
)

// What tests of directories are written with.
type tree = filetree.Tree

const smallest, more = filetree.Smallest, filetree.More

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
