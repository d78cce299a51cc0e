// Package pdp is the policy decision point as a library. [New] loads a bundle of
// Cedar policies from a [Source]; [PDP.Evaluate] answers requests from it.
//
// Read pdp.go first: Evaluate is the decision path from top to bottom. Then read
//   - approval.go: what an approval changes about an answer;
//   - batch.go and search.go: many questions of one call;
//   - reload.go, with watch.go, lookout.go and overtake.go: how the next bundle comes into force.
//
// Five packages below internal do the work. Package source reads the files of a bundle. Package
// bundle makes a [Bundle] of them, and finds everything that can be wrong with it before it decides
// anything. Package engine puts one question to one Bundle. Package lint warns of what is legal and
// probably not meant. Package outline lists the names that policies can use.
//
// Three rules hold everywhere.
//   - A decision is a function of request, caller, clock reading and bundle, and of the approval
//     if one is spent.
//   - Every failure ends in a deny or in an error, never in an allow.
//   - There is one decision path, over HTTP, from the command line or in a test: [PDP.Evaluate],
//     with [PDP.EvaluateBatch] and [PDP.Search], which judge and record in the same way.
//
// The package evaluates no policy itself: every verdict comes from cedar-go. It serves no
// network, and it keeps nothing on disk.
package pdp
