package source_test

import (
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest/filetree"
)

// Directories, as tests write them.
type tree = filetree.Tree

const smallest, more = filetree.Smallest, filetree.More

var renamed = filetree.Renamed

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func codes(ps pdp.Problems) (all []string) {
	for _, p := range ps {
		all = append(all, p.File+" "+p.Code)
	}
	return all
}
