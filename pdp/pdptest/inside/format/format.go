// Package format makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/format.
package format

import "policy-service/pdp/internal/decisionlog/format"

const (
	ExportVersion     = format.ExportVersion
	MergeVersion      = format.MergeVersion
	BucketCheckpoints = format.BucketCheckpoints
	BucketMeta        = format.BucketMeta
	CheckpointFile    = format.CheckpointFile
	ConflictFile      = format.ConflictFile
	EventCrash        = format.EventCrash
	EventKeyRotated   = format.EventKeyRotated
	EventRetired      = format.EventRetired
	EventStart        = format.EventStart
	EventStop         = format.EventStop
	VersionJournaled  = format.VersionJournaled
	Version           = format.Version
	KindAdmin         = format.KindAdmin
	KindApproval      = format.KindApproval
	KindBatch         = format.KindBatch
	KindCapability    = format.KindCapability
	KindDecision      = format.KindDecision
	KindReceipt       = format.KindReceipt
	LogDir            = format.LogDir
	MetaFormat        = format.MetaFormat
	MetaHead          = format.MetaHead
	SuspectsFile      = format.SuspectsFile
	WitnessedFile     = format.WitnessedFile
)
