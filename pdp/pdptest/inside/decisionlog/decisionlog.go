// Package decisionlog makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog.
package decisionlog

import "policy-service/pdp/internal/decisionlog"

type (
	Decision = decisionlog.Decision
	Entry    = decisionlog.Entry
	Filter   = decisionlog.Filter
	Log      = decisionlog.Log
	Mode     = decisionlog.Mode
	Options  = decisionlog.Options
	Receipt  = decisionlog.Receipt
	Request  = decisionlog.Request
	Snapshot = decisionlog.Snapshot
)

const (
	BestEffort        = decisionlog.BestEffort
	BucketCheckpoints = decisionlog.BucketCheckpoints
	BucketMeta        = decisionlog.BucketMeta
	BundlesDir        = decisionlog.BundlesDir
	CheckpointFile    = decisionlog.CheckpointFile
	ConflictFile      = decisionlog.ConflictFile
	EventCrash        = decisionlog.EventCrash
	EventKeyRotated   = decisionlog.EventKeyRotated
	EventRetired      = decisionlog.EventRetired
	EventStart        = decisionlog.EventStart
	EventStop         = decisionlog.EventStop
	FormatJournaled   = decisionlog.VersionJournaled
	FormatVersion     = decisionlog.Version
	KindAdmin         = decisionlog.KindAdmin
	KindApproval      = decisionlog.KindApproval
	KindBatch         = decisionlog.KindBatch
	KindCapability    = decisionlog.KindCapability
	KindDecision      = decisionlog.KindDecision
	KindReceipt       = decisionlog.KindReceipt
	LogDir            = decisionlog.LogDir
	MetaFormat        = decisionlog.MetaFormat
	MetaHead          = decisionlog.MetaHead
	Strict            = decisionlog.Strict
	SuspectsFile      = decisionlog.SuspectsFile
	WitnessedFile     = decisionlog.WitnessedFile
)

var (
	ErrChanged   = decisionlog.ErrChanged
	Open         = decisionlog.Open
	OpenBundles  = decisionlog.OpenBundles
	OpenReader   = decisionlog.OpenReader
	Parse        = decisionlog.Parse
	Read         = decisionlog.Read
	VerifierKeys = decisionlog.VerifierKeys
)
