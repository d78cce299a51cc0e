package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/witness"
)

// Log counts the work of the decision log. Its methods have the form of the callbacks of the log.
type Log struct {
	records, rotations         metric.Int64Counter
	indexFailures              metric.Int64Counter
	retentionFailures, retired metric.Int64Counter
	witnessed                  metric.Int64Counter

	commits, fills            metric.Float64Histogram
	commitRecords, commitSize metric.Int64Histogram
}

func (l *Log) make(i *instruments) {
	ctx := context.Background()
	l.records = i.counter("policy_service.log.records", "{record}", "Records written to the decision log.")
	l.rotations = i.counter("policy_service.log.rotations", "{segment}", "Segments of the decision log that were sealed.")
	l.indexFailures = i.counter("policy_service.log.index.failures", "{attempt}",
		"Attempts to make an index of the decision log that failed.")
	l.retentionFailures = i.counter("policy_service.log.retention.failures", "{attempt}", "Runs of retention that failed.")
	l.retired = i.counter("policy_service.log.retention.records", "{record}", "Records whose content retention dropped.")
	l.witnessed = i.counter("policy_service.log.witness.answers", "{answer}", "Checkpoints that were submitted to witnesses, by what came of each.")
	for _, c := range []metric.Int64Counter{l.records, l.rotations, l.indexFailures, l.retentionFailures, l.retired} {
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

// Rotated counts a segment that was sealed.
func (l *Log) Rotated() { l.rotations.Add(context.Background(), 1) }

// Retained counts a run of retention.
func (l *Log) Retained(done decisionlog.Retired, err error) {
	if err != nil {
		l.retentionFailures.Add(context.Background(), 1)
	}
	l.retired.Add(context.Background(), int64(done.Records))
}

// IndexFailed counts a failed attempt to make an index.
func (l *Log) IndexFailed() { l.indexFailures.Add(context.Background(), 1) }

// Witnessed counts the outcomes of submissions to the witnesses of a policy.
func (l *Log) Witnessed(policy *c2sp.Policy) func(label string, outcome witness.Outcome) {
	count := func(n int64, label string, outcome witness.Outcome) {
		l.witnessed.Add(context.Background(), n, metric.WithAttributes(attribute.String("witness", label), attribute.String("outcome", string(outcome))))
	}
	for _, one := range policy.Witnesses {
		for _, outcome := range witness.Outcomes() {
			count(0, one.Label, outcome)
		}
	}
	return func(label string, outcome witness.Outcome) { count(1, label, outcome) }
}
