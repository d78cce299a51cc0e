package author

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// recordedCall is the call of a record.
func (c Eval) recordedCall(
	s cli.Streams, limits evaluation.Limits,
) (call pdp.Call, recorded *record.Recorded, bundle *pdp.Bundle, err error) {
	if c.Tenant != "" {
		return call, nil, nil, errors.New("--tenant and --record: the record names its tenant; leave out --tenant")
	}
	if c.Held {
		return call, nil, nil, errors.New("--held and --record: the record says whether a capability was held; leave out --held")
	}
	if recorded, err = c.find(s); err != nil {
		return call, nil, nil, err
	}
	if bundle, err = bundledir.Load(c.Policies, s); err != nil {
		return call, nil, nil, err
	}
	call, err = recorder.CallOf(recorded, bundle, limits)
	if err != nil {
		err = fmt.Errorf("cannot decide the record again: %w; policy-service log show says what is on record", err)
	}
	return call, recorded, bundle, err
}

func (c Eval) find(s cli.Streams) (*record.Recorded, error) {
	in, err := cli.Open(c.File, s.In)
	if err != nil {
		return nil, fmt.Errorf("cannot read the records: %w; try a file that policy-service log export wrote, or - for "+
			"standard input", err)
	}
	defer func() { _ = in.Close() }()
	recorded, err := export.Find(in, string(c.Record))
	if err != nil {
		return nil, fmt.Errorf("cannot read the record from %s: %w; try a file that policy-service log export wrote, and "+
			"an id from policy-service log tail", c.File, err)
	}
	return &recorded, nil
}

// tellRecorded says how the record differs from the answer of today.
func tellRecorded(s cli.Streams, r *record.Recorded, d evaluation.Decision) {
	if r.Bundle != d.Bundle {
		s.Tell("the record was decided by another bundle, %s; what log show --bundle writes is another one, too, if it lacks files of tenants that you may not read", cmp.Or(r.Bundle, "which it does not name"))
	} else if open := withoutAll(slices.Concat(r.Determining, r.Overruled), slices.Concat(d.Determining, d.Overruled)); len(open) > 0 {
		s.Tell("the record names policies too that read what is masked: %s", strings.Join(open, ", "))
	}
	if r.Answer() != recorder.AnswerOf(d) || r.Reason != string(d.Reason) {
		s.Tell("the record says %s", strings.TrimSpace(r.Answer()+" "+r.Reason))
	}
}

// withoutAll are the names that are not among others.
func withoutAll(names, others []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(others, name) })
}
