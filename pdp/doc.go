// Package pdp is the policy decision point as a library. [New] loads a bundle of
// Cedar policies from a [Source]; [PDP.Evaluate] answers requests from it.
//
// Read pdp.go first: Evaluate is the decision path from top to bottom. Then approval.go
// (what an approval changes about an answer), batch.go and search.go (many questions of one
// call), and reload.go with watch.go, lookout.go and overtake.go (how the next bundle comes
// into force). What makes it work stands in three rooms below internal: bundle (files become
// a [Bundle], and everything that can be wrong with one is found before it decides anything),
// engine (one question to one Bundle) and lint (what is legal and probably not meant).
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
