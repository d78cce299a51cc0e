package sink

import (
	"context"
	"time"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/telemetry"
)

// otlp sends records over OTLP/HTTP.
type otlp struct {
	to  *telemetry.Records
	now func() time.Time
}

// OTLP makes the exporter of records. A variable that cannot be read is an error.
func OTLP(ctx context.Context, from *telemetry.Telemetry, now func() time.Time) (Send, error) {
	// If a receiver asks to be tried again, or names a time to wait, the exporter does so as long
	// as the attempt lasts. The sink sees to every other failure.
	to, err := from.OpenRecords(ctx, sinkAgain)
	if err != nil {
		return nil, err
	}
	return (&otlp{to, now}).send, nil
}

// send exports records, all in one request.
func (o *otlp) send(ctx context.Context, records []decisionlog.Record) error {
	for _, r := range records {
		o.emit(r.Line)
	}
	return o.to.Send(ctx)
}
