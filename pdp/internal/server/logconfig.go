package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/config"
)

// DecisionLogConfig says how decisions are recorded.
type DecisionLogConfig struct {
	// Mode is strict, the default, or best_effort.
	Mode decisionlog.Mode `yaml:"mode" default:"strict" enum:"strict,best_effort" doc:"strict: an answer leaves once its record is on disk. best_effort: answers do not wait, and some may have no record."`
	// Tiles is credential, the default, or public.
	Tiles audit.Tiles `yaml:"tiles" default:"credential" enum:"credential,public" doc:"Whose requests for the tree of the log are answered, which is its newest checkpoint and its tiles. credential: tiles need log.read on all tenants. public: everybody's, without a credential."`
	// Mask are JSON Pointer patterns of values to mask, besides those whose names
	// say that they are secrets; see package mask.
	Mask []string `yaml:"mask" reload:"yes" doc:"JSON Pointer patterns of values to mask, besides the values whose names say that they are secrets."`
	// Retain says how long content is kept; the zero value keeps all.
	Retain RetainConfig `yaml:"retain" reload:"yes"`
	// Witnesses cosign the log; nil is none.
	Witnesses *WitnessesConfig `yaml:"witnesses" doc:"Witnesses that cosign the checkpoints of the decision log, so that nobody can be shown another one. There are none unless it is given."`
	// Sinks say where records go besides; the zero value is nowhere.
	Sinks SinksConfig `yaml:"sinks"`
}

// RetainConfig bounds what the decision log keeps; see [decisionlog.Retention].
type RetainConfig struct {
	// Age is how old a record becomes before its segment goes, at least an hour.
	Age time.Duration `yaml:"age" min:"1h" doc:"The age that a record reaches before its content is dropped, like 90d or 2160h. Without it, no record is dropped for its age."`
	// Bytes is what records may take on disk, their hashes aside, at least 64 MiB.
	Bytes int64 `yaml:"bytes" min:"67108864" doc:"The bytes that records may take on disk, not counting their hashes. Without it, there is no limit."`
	// LeastAge is how old a record becomes in any case; see [RetainConfig.bounds].
	LeastAge time.Duration `yaml:"least_age" min:"1m" doc:"The age that a record reaches before its content may be dropped for bytes. It needs bytes. 24h unless given, or age if that is less."`
	// Share is how much of Bytes one caller may fill within that time.
	Share float64 `yaml:"share" min:"0.01" max:"1" doc:"The part of bytes that one caller may fill within least_age. Beyond it, the caller gets 429. It needs bytes. 0.25 unless given."`
	// SharePerson is how much of Bytes one may fill for whom a caller asks that has the permission relay.
	SharePerson float64 `yaml:"share_person" min:"0.01" max:"1" doc:"The part of bytes that one person, or else one subject, may fill within least_age for whom a caller with the permission relay asks. Beyond it, what is asked for that one gets 429. All for whom such a caller asks have half of bytes. It needs bytes. 0.0625 unless given."`
}

// SinksConfig says where records go besides the decision log. No sink is the truth: it may lack records, and may have a
// record twice.
type SinksConfig struct {
	// Stdout writes each record to [Program.Checkpoints] as the line that was hashed.
	// Such a line begins with {, and no line of a checkpoint does.
	Stdout *SinkConfig `yaml:"stdout" doc:"Writes each record to standard output, as the line that was hashed."`
	// OTLP sends each record over OTLP/HTTP, to where the environment variables of
	// OpenTelemetry say: OTEL_EXPORTER_OTLP_ENDPOINT and its like.
	OTLP *SinkConfig `yaml:"otlp" doc:"Sends each record over OTLP/HTTP, to the address that OpenTelemetry's environment variables name."`
}

// SinkConfig bounds a sink. The zero value is ready to use.
type SinkConfig struct {
	// Queue is how many records may wait to be handed on. If more wait, the oldest are left out. Waiting takes no
	// memory. It is 1000 at least, because the items of one batch can be that many.
	Queue int64 `yaml:"queue" default:"10000" min:"1000" doc:"How many records may wait for the sink. If more wait, the sink leaves out the oldest."`
}

// The paths of the keys of [RetainConfig].
const (
	keyRetainShare = "decision_log.retain.share"
	keyRetainAge   = "decision_log.retain.age"
	keyRetainBytes = "decision_log.retain.bytes"
	keyRetainLeast = "decision_log.retain.least_age"
	keyRetainOfOne = "decision_log.retain.share_person"
)

// The values of LeastAge and Share if only Bytes is given.
const (
	defaultLeastAge = 24 * time.Hour
	defaultShare    = 0.25
	defaultOfOne    = 0.0625
)

// bounds is the retention of the log. If Bytes limits it, no record younger than LeastAge is dropped for Bytes, and no
// caller fills more than its share of Bytes within that time.
func (r RetainConfig) bounds() decisionlog.Retention {
	keep := decisionlog.Retention{Age: r.Age, Bytes: r.Bytes}
	if r.Bytes > 0 {
		keep.LeastAge = cmp.Or(r.LeastAge, min(defaultLeastAge, cmp.Or(r.Age, defaultLeastAge)))
		keep.Share = cmp.Or(r.Share, defaultShare)
		keep.SharePerson = cmp.Or(r.SharePerson, min(defaultOfOne, keep.Share))
	}
	return keep
}

// mostShare is the greatest share of one caller that leaves others as much.
const mostShare = 0.5

// doubtful returns an error if one caller may fill so much that others have no room.
func (r RetainConfig) doubtful() error {
	if r.Share <= mostShare {
		return nil
	}
	return fmt.Errorf("%s is %v: one caller can fill so much of %s, and when all of it is young everybody gets 503; write %v at most, and give a gateway the permission relay, with which each person for whom it asks has a share (%s)",
		keyRetainShare, r.Share, keyRetainBytes, mostShare, keyRetainOfOne)
}

// check looks for mistakes in the values of the section.
func (c DecisionLogConfig) check(r *config.Reading) {
	for n, pattern := range c.Mask {
		r.Add(fmt.Sprintf("decision_log.mask[%d]", n), mask.Check([]string{pattern}))
	}
	c.Witnesses.check(r, c.Mode)
	keep := c.Retain
	if keep.Age > 0 && keep.Age < keep.LeastAge {
		r.Addf(keyRetainLeast, "%s is %v, and records go at %v by %s; write no more than that", keyRetainLeast, keep.LeastAge, keep.Age, keyRetainAge)
	}
	bounds := keep.bounds()
	for _, one := range []struct {
		key          string
		given, share float64
	}{{keyRetainShare, keep.Share, bounds.Share}, {keyRetainOfOne, keep.SharePerson, bounds.SharePerson}} {
		switch {
		case keep.Bytes == 0 && one.given > 0:
			r.Addf(one.key, "%s is a part of %s, and there is none; write both, or leave it out", one.key, keyRetainBytes)
		case keep.Bytes > 0 && one.share*float64(keep.Bytes) < leastShare:
			r.Addf(one.key, "%s is less than %d bytes of %s; write more of one of them: a share has to be some segments, or it would not grow old", one.key, leastShare, keyRetainBytes)
		}
	}
	if keep.Bytes == 0 && keep.LeastAge > 0 {
		r.Addf(keyRetainLeast, "%s bounds %s, and there is none; write both, or leave it out", keyRetainLeast, keyRetainBytes)
	}
}

// Outlasted is an error if records may be dropped before approvals end that last so long: see
// [pdp.Bundle.LongestApproval].
func (r RetainConfig) Outlasted(longest time.Duration) error {
	if r.Age == 0 || r.Age >= longest {
		return nil
	}
	return fmt.Errorf("%s is %v, and an approval request of this bundle lasts up to %v: once its steps are dropped from the log it allows nothing; make the age %v at least, or timeout, valid_for and rounds_within in obligations.yaml shorter", keyRetainAge, r.Age, longest, longest)
}

// A segment is dropped as a whole, so it holds at most this part of what is kept.
const segmentsKept = 8

// A segment also holds at most this part of what one caller may fill. That is leastShare at least, because a segment
// has a megabyte or more.
const (
	sharesKept = 2
	leastShare = sharesKept << 20
)

// segments are the greatest age and size of a segment. They are small enough for retention to act in time.
func (r RetainConfig) segments() (s segments) {
	s.age, s.bytes = 24*time.Hour, 64<<20
	if r.Age > 0 {
		s.age = min(s.age, r.Age/segmentsKept)
	}
	if r.Bytes > 0 { // a share must be some segments, too: a record grows old only once its segment is sealed
		share := int64(min(r.bounds().Share, r.bounds().SharePerson) * float64(r.Bytes))
		s.bytes = max(1<<20, min(s.bytes, r.Bytes/segmentsKept, share/sharesKept))
	}
	return s
}

type segments struct {
	age   time.Duration
	bytes int64
}

// checkSinks refuses sinks that would never get a record.
func (c *Config) checkSinks() error {
	sinks := c.DecisionLog.Sinks
	switch {
	case sinks != (SinksConfig{}) && c.Program.PDP.Recorder != nil:
		return errors.New("decision_log.sinks follow the decision log, and a Recorder takes its place; leave one of them out")
	case c.DecisionLog.Witnesses != nil && c.Program.PDP.Recorder != nil:
		return errors.New("decision_log.witnesses cosign the decision log, and a Recorder takes its place; leave one of them out")
	case sinks.Stdout != nil && c.Program.Checkpoints == io.Discard:
		return errors.New("decision_log.sinks.stdout has nowhere to write; set Config.Program.Checkpoints")
	}
	return nil
}

// checkData refuses a decision log that has no directory. It is called before the defaults are set.
func (c *Config) checkData() error {
	if c.Data == "" && !reflect.DeepEqual(c.DecisionLog, DecisionLogConfig{}) {
		return errors.New("a decision log needs a directory to be kept in; add --data, or data in the configuration")
	}
	return nil
}
