package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"policy-service/pdp/decisionlog"
)

// Log counts the work of the decision log. Its methods have the form of the callbacks of the log.
type Log struct {
	records, rotations, replacements metric.Int64Counter
	indexFailures                    metric.Int64Counter
	retentionFailures, retired       metric.Int64Counter

	commits, fills            metric.Float64Histogram
	commitRecords, commitSize metric.Int64Histogram
	pauses                    histogram[string]
}

func (l *Log) make(i *instruments) {
	ctx := context.Background()
	l.records = i.counter("policy_service.log.records", "{record}", "Records written to the decision log.")
	l.rotations = i.counter("policy_service.log.rotations", "{segment}", "Segments of the decision log that were sealed.")
	l.replacements = i.counter("policy_service.log.replacements", "{segment}",
		"Segments from which redaction or retention took content.")
	l.indexFailures = i.counter("policy_service.log.index.failures", "{attempt}",
		"Attempts to make an index of the decision log that failed.")
	l.retentionFailures = i.counter("policy_service.log.retention.failures", "{attempt}", "Runs of retention that failed.")
	l.retired = i.counter("policy_service.log.retention.records", "{record}", "Records whose content retention dropped.")
	counters := []metric.Int64Counter{
		l.records, l.rotations, l.replacements, l.indexFailures, l.retentionFailures, l.retired,
	}
	for _, c := range counters {
		c.Add(ctx, 0) // there from the start; see Tally
	}
	l.commits = i.seconds("policy_service.log.commit.duration",
		"How long records that were written together took to be durable, in the journal or in a segment.",
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
	l.fills = i.seconds("policy_service.log.fill.duration",
		"How long it took to fill a segment of the decision log with what the journal had.",
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10)
	l.commitRecords = i.sizes("policy_service.log.commit.records", "{record}",
		"Records that were written to the decision log together.",
		0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
	l.commitSize = i.sizes("policy_service.log.commit.size", "By",
		"Bytes of records that were written to the decision log together.",
		512, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20)
	l.pauses.instrument = i.seconds("policy_service.log.pause.duration",
		"How long the writer of the decision log was kept from writing, "+
			"by rotation or by putting a segment in the place of another.",
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
	l.pauses.series.attributes = named[string]("cause")
}

// Committed counts records that were made durable together.
func (l *Log) Committed(c decisionlog.Commit) {
	ctx := context.Background()
	l.records.Add(ctx, int64(c.Records))
	l.commits.Record(ctx, c.Took.Seconds())
	l.commitRecords.Record(ctx, int64(c.Records))
	l.commitSize.Record(ctx, int64(c.Bytes))
}

// Filled counts a transaction that filled a segment from the journal.
func (l *Log) Filled(took time.Duration) { l.fills.Record(context.Background(), took.Seconds()) }

// Rotated counts a segment that was sealed, and how long that kept the writer.
func (l *Log) Rotated(_ uint64, kept time.Duration) {
	l.rotations.Add(context.Background(), 1)
	l.pauses.record(context.Background(), kept.Seconds(), "rotation")
}

// Replaced counts a segment that lost content, and how long that kept the writer.
func (l *Log) Replaced(_ uint64, kept time.Duration) {
	l.replacements.Add(context.Background(), 1)
	l.pauses.record(context.Background(), kept.Seconds(), "replacement")
}

// Retained counts a run of retention.
func (l *Log) Retained(done decisionlog.Retired, err error) {
	if err != nil {
		l.retentionFailures.Add(context.Background(), 1)
	}
	l.retired.Add(context.Background(), int64(done.Records))
}

// IndexFailed counts a failed attempt to make an index.
func (l *Log) IndexFailed() { l.indexFailures.Add(context.Background(), 1) }
