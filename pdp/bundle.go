package pdp

import (
	"io/fs"
	"time"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/internal/lint"
	"policy-service/pdp/internal/outline"
	"policy-service/pdp/internal/source"
)

// The types of a bundle, and of the problems that it can have.
type (
	// Bundle is everything that decides, loaded and checked as one. It is immutable.
	Bundle = bundle.Bundle
	// PolicyInfo describes a policy.
	PolicyInfo = bundle.PolicyInfo
	// PolicyContents are the names in a policy, and its reads.
	PolicyContents = bundle.Contents
	// OpenPolicy is a policy of the root that tenants' own entities come under.
	OpenPolicy = bundle.OpenPolicy
	// Demand is an approval that policies name.
	Demand = bundle.Demand
	// PolicyTest is a test that a policy makes before anything else.
	PolicyTest = bundle.Tested
	// AccessPolicies are the policies that a tool access declaration is made into.
	AccessPolicies = bundle.AccessPolicies
	// Source is the place where the files of a bundle are.
	Source = source.Source
	// Files are the files of a bundle, as one reading found them.
	Files = source.Files
	// Problem is one thing that is wrong with a bundle.
	Problem = bundle.Problem
	// Problems are all things that are wrong with a bundle. They keep it from loading if the
	// severity of one of them is error.
	Problems = bundle.Problems
	// Severity says whether a problem keeps a bundle from loading.
	Severity = bundle.Severity
	// Outline is all that the policies of one tenant can name.
	Outline = outline.Outline
	// Attribute is one that policies can read.
	Attribute = outline.Attribute
)

// The severities.
const (
	SeverityError   = bundle.SeverityError
	SeverityWarning = bundle.SeverityWarning
)

// The types of questions and answers besides decisions.
type (
	// Reviewer answers which approvals one person may decide about. All its answers come from
	// one bundle and one reading of the clock.
	Reviewer = engine.Reviewer
	// Approver is a person who would decide about approvals, by a credential.
	Approver = engine.Approver
	// Reviewed is all that determines which persons may decide about an approval.
	Reviewed = engine.Reviewed
	// Review is the answer about one person and one approval.
	Review = engine.Review
	// PolicyCost is the share that one policy has in the time that decisions take.
	PolicyCost = engine.PolicyCost
)

// Dir returns the source of a bundle in a directory.
func Dir(path string) Source { return source.Dir(path) }

// FS returns the source of a bundle in a file system.
func FS(fsys fs.FS) Source { return source.FS(fsys) }

// Load reads a bundle. The bundle is nil if one of the problems is an error.
func Load(source Source) (*Bundle, Problems) { return bundle.Load(source) }

// ReadAccess lists the faults of one tool access declaration by itself.
func ReadAccess(file string, text []byte) Problems { return bundle.ReadAccess(file, text) }

// Observes reports whether a policy, by its id, is there for capability: observe. It decides together with others, about
// a call that capability: required would refuse.
func Observes(id string) bool { return bundle.Observes(id) }

// Check reads a bundle as [Load] does, and adds warnings about what is legal and probably not meant.
// The time is the one at which it is judged what is over.
func Check(source Source, now time.Time) (*Bundle, Problems) { return lint.Check(source, now) }

// OutlineOf returns all that the policies of a tenant can name. It is nil if there is no such tenant.
func OutlineOf(b *Bundle, tenant string) *Outline { return outline.Of(b, tenant) }
