package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/server/door"
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
		Determining: d.Determining, Errors: d.Errors, Required: d.Required, LeftOut: d.LeftOut, Discharged: d.Met, Bundle: d.Bundle,
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
	out.Obligations, err = marshal(owed)
	return out, err
}

// malformedOf is what was wrong with an item of a batch. It quotes names of members,
// which are the caller's.
func malformedOf(bad *evaluation.Error, masked *mask.Masking) (jsontext.Value, error) {
	return marshal(struct {
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

// traceID is the trace a request says it belongs to, "" for none.
func traceID(h http.Header) string {
	if parts := traceParent(h); parts != nil {
		return parts[1]
	}
	return ""
}

// traceParent are the parts of the header traceparent of W3C Trace Context: version, trace,
// span and flags; nil where there is none that is legal.
func traceParent(h http.Header) []string {
	headers := h.Values("Traceparent")
	if len(headers) != 1 {
		return nil
	}
	parts := strings.Split(headers[0], "-")
	if len(parts) < 4 || !isHex(parts[0], 2) || parts[0] == "ff" || !isHex(parts[1], 32) || !isHex(parts[2], 16) || !isHex(parts[3], 2) ||
		parts[0] == "00" && len(parts) != 4 || strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return nil
	}
	return parts
}

func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// known is what others know a request by: the trace is the one it is traced in, or where
// nobody traces here the one it says it belongs to.
func known(c echo.Context) (request, inTrace string) {
	if of := trace.SpanContextFromContext(c.Request().Context()); of.IsValid() {
		return door.RequestID(c), of.TraceID().String()
	}
	return door.RequestID(c), traceID(c.Request().Header)
}
