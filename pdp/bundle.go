package pdp

import (
	"io/fs"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/internal/lint"
)

// What is loaded, and what can be wrong with it.
type (
	// Bundle is everything that decides, loaded and checked as one, immutable.
	Bundle = bundle.Bundle
	// PolicyInfo is what there is to say about a policy.
	PolicyInfo = bundle.PolicyInfo
	// Source is where the files of a bundle are.
	Source = bundle.Source
	// Files are the files of a bundle, as one reading found them.
	Files = bundle.Files
	// Problem is something that is wrong with a bundle.
	Problem = bundle.Problem
	// Problems are all that is wrong with a bundle. They are an error if one of them is.
	Problems = bundle.Problems
	// Severity says whether a problem keeps a bundle from loading.
	Severity = bundle.Severity
)

// The severities.
const (
	SeverityError   = bundle.SeverityError
	SeverityWarning = bundle.SeverityWarning
)

// What is asked besides decisions.
type (
	// Reviewer answers which approvals one person may decide about, all from one bundle
	// and one reading of the clock.
	Reviewer = engine.Reviewer
	// Reviewed is an approval as far as it matters to who may decide about it.
	Reviewed = engine.Reviewed
	// Review is the answer about one person and one approval.
	Review = engine.Review
	// PolicyCost is what one policy takes of the time in which requests are decided.
	PolicyCost = engine.PolicyCost
)

// Dir is a bundle in a directory.
func Dir(path string) Source { return bundle.Dir(path) }

// FS is a bundle in a file system.
func FS(fsys fs.FS) Source { return bundle.FS(fsys) }

// Load reads a bundle. It is nil if one of the problems is an error.
func Load(source Source) (*Bundle, Problems) { return bundle.Load(source) }

// Check is Load, and says besides what is legal and probably not meant.
func Check(source Source) (*Bundle, Problems) { return lint.Check(source) }
