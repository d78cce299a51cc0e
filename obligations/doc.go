// Package obligations has the acts that a PEP must do besides enforcing an answer: their
// types ([Types]), what the determining policies of a decision come
// to ([Resolve]), and the PEP's half of the bargain ([Discharge]).
//
// An obligation is no advice. Where one cannot be met, or is not understood,
// the answer is a deny: on this side of the wire when two of them contradict
// each other or have no values, on the other side when the PEP does not handle them.
//
// The package knows no HTTP, no Cedar and no storage, so that a policy
// enforcement point can import it.
package obligations
