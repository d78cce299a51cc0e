// Package pdp is the policy decision point as a library. [New] loads a bundle of
// Cedar policies from a [Source]; [PDP.Evaluate] answers requests from it.
//
// Read pdp.go first: Evaluate is the decision path from top to bottom. Then
// approval.go (what an approval changes about an answer), inquiry.go (how the questions
// of one call are made), cedar.go (a question is put to Cedar, and its answers become a
// verdict and a decision), convert.go (JSON values become Cedar values, or are unusable), entities.go
// (what is stored and what was sent become one), index.go (which policies are
// asked at all), explain.go (how it came about), policycost.go (what each policy
// takes); and for what is on disk bundle.go (everything that can be wrong with a
// bundle, found before it decides anything), source.go and watch.go (reading it,
// and reading it again).
//
// Three rules hold everywhere. A decision is a function of request, caller,
// clock reading, bundle and, where one is spent, the approval. Whatever goes wrong ends
// in a deny or in an error, never in an allow. And there is one decision path, over HTTP,
// from the command line or in a test: [PDP.Evaluate], with [PDP.EvaluateBatch] and
// [PDP.Search], which judge and record in the same way.
//
// The package evaluates no policy itself: every verdict is cedar-go's. It
// serves no network, and it keeps nothing on disk.
package pdp
