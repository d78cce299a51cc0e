package server

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
)

// DecisionLogConfig says how decisions are recorded.
type DecisionLogConfig struct {
	// Mode is strict, the default, or best_effort.
	Mode decisionlog.Mode `yaml:"mode" default:"strict" enum:"strict,best_effort" doc:"strict: no answer leaves before its record is on disk. best_effort: answers do not wait, and some may not be on record."`
	// Mask are JSON Pointer patterns of values to mask, besides those whose names
	// say that they are secrets; see package mask.
	Mask []string `yaml:"mask" reload:"yes" doc:"JSON Pointer patterns of values to mask, besides those whose names say that they are secrets."`
	// Retain says how long content is kept; the zero value keeps all.
	Retain RetainConfig `yaml:"retain" reload:"yes"`
	// Sinks say where records go besides; the zero value is nowhere.
	Sinks SinksConfig `yaml:"sinks"`
}

// RetainConfig bounds what the decision log keeps; see [decisionlog.Retention].
type RetainConfig struct {
	// Age is how old a record becomes before its segment goes, at least an hour.
	Age time.Duration `yaml:"age" min:"1h" doc:"How old a record becomes before its content goes, like 90d or 2160h; without it, records of any age are kept."`
	// Bytes is what records may take on disk, their hashes aside, at least 64 MiB.
	Bytes int64 `yaml:"bytes" min:"67108864" doc:"What records may take on disk, their hashes aside; without it, as much as there is."`
}

// KeyRetainAge is the path of [RetainConfig.Age].
const KeyRetainAge = "decision_log.retain.age"

// Outlasted says what is wrong where records may go before the approvals that last so
// long do: see [pdp.Bundle.LongestApproval].
func (r RetainConfig) Outlasted(longest time.Duration) error {
	if r.Age == 0 || r.Age >= longest {
		return nil
	}
	return fmt.Errorf("%s is %v, and a request for approval of this bundle lasts up to %v: once its steps are dropped from the log it allows nothing; make the age %v at least, or timeout and valid_for in obligations.yaml shorter", KeyRetainAge, r.Age, longest, longest)
}

// A segment goes as a whole, so it may be no more than this part of what is kept.
const segmentsKept = 8

// segments makes segments small enough for retention to act in time.
func (r RetainConfig) segments(o *decisionlog.Options) {
	if r.Age > 0 {
		o.SegmentAge = min(24*time.Hour, r.Age/segmentsKept)
	}
	if r.Bytes > 0 {
		o.SegmentBytes = min(64<<20, r.Bytes/segmentsKept)
	}
}

// sameSegments reports whether both have the log make the same segments.
func (r RetainConfig) sameSegments(other RetainConfig) bool {
	ours, theirs := decisionlog.Options{SegmentAge: 24 * time.Hour, SegmentBytes: 64 << 20}, decisionlog.Options{SegmentAge: 24 * time.Hour, SegmentBytes: 64 << 20}
	r.segments(&ours)
	other.segments(&theirs)
	return ours.SegmentAge == theirs.SegmentAge && ours.SegmentBytes == theirs.SegmentBytes
}

// checkLog refuses what would not be done: who asks for a strict log must get one.
func (c *Config) checkLog() error {
	return errors.Join(mask.Check(c.DecisionLog.Mask), c.checkSinks())
}

// checkData is about what was asked for, before there are defaults.
func (c *Config) checkData() error {
	if c.Data == "" && !reflect.DeepEqual(c.DecisionLog, DecisionLogConfig{}) {
		return errors.New("a decision log needs a directory to be kept in; add --data, or data in the configuration")
	}
	return nil
}

// checkMask says the place of a pattern that is wrong.
func (r *configReader) checkMask(patterns []string) {
	for n, pattern := range patterns {
		if err := mask.Check([]string{pattern}); err != nil {
			r.badAt(fmt.Sprintf("decision_log.mask[%d]", n), err)
		}
	}
}
