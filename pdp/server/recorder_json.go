package server

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/telemetry"
)

// searchOf is what a search found: ids, or names of actions.
func searchOf(record pdp.Record) *decisionlog.Search {
	found := make([]string, len(record.Search.Found))
	for n, f := range record.Search.Found {
		if found[n] = f.ID; record.Kind == evaluation.ActionSearch {
			found[n] = f.Name
		}
	}
	return &decisionlog.Search{Query: record.Kind, Found: found, Examined: record.Search.Examined, Bundle: record.Bundle}
}

// recordedObligation is an obligation as it is answered; which policies ordered it is
// among the determining ones.
type recordedObligation struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Properties evaluation.Object `json:"properties"`
}

func decisionOf(d evaluation.Decision, masked *mask.Masking) (*decisionlog.Decision, error) {
	out := &decisionlog.Decision{
		Allow: d.Allow, Reason: string(d.Reason), ReasonUser: masked.Text(d.ReasonUser),
		Determining: d.Determining, Errors: d.Errors, Required: d.Unmet.Required, LeftOut: d.Unmet.LeftOut, Discharged: d.Met, Bundle: d.Bundle,
	}
	out.Mismatch = pointersOf(d.Mismatch, masked)
	if len(d.Obligations) == 0 {
		return out, nil
	}
	owed := make([]recordedObligation, len(d.Obligations))
	for n, o := range d.Obligations {
		owed[n] = recordedObligation{o.ID, o.Type, masked.Object(o.Properties)}
	}
	var err error
	out.Obligations, err = door.Marshal(owed)
	return out, err
}

// malformedOf is what was wrong with an item of a batch. It quotes names of members,
// which are the caller's.
func malformedOf(bad *evaluation.Error, masked *mask.Masking) (jsontext.Value, error) {
	return door.Marshal(struct {
		Malformed struct {
			Pointer string `json:"pointer"`
			Detail  string `json:"detail"`
		} `json:"malformed"`
	}{struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	}{masked.Pointer(bad.Pointer, ""), masked.Text(bad.Detail)}})
}

// maxPointers bounds the pointers of one record, in bytes: a thousand items may inherit
// what does not fit.
const maxPointers = 512

// pointersOf are the places of what does not fit, those that there is room for.
func pointersOf(all []evaluation.Mismatch, masked *mask.Masking) (pointers []string) {
	room := maxPointers
	for _, m := range all {
		pointer := masked.Pointer(m.Pointer, m.Place)
		if room -= len(pointer); room < 0 && len(pointers) > 0 {
			break
		}
		pointers = append(pointers, pointer)
	}
	return slices.Compact(pointers)
}

// known are the names by which clients and tracers know a request: its id and its trace.
func known(c echo.Context) (request, inTrace string) {
	return door.RequestID(c), telemetry.TraceID(c.Request())
}
