// Package report makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/report.
package report

import "policy-service/pdp/internal/decisionlog/report"

type SampleOptions = report.SampleOptions

var Choose = report.Choose
