package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/witness"
)

// State are the values that the service looks up when its metrics are read.
type State struct {
	// Exports is how many read the whole decision log.
	Exports int
	// Bundle is the digest of the bundle in force, and BundleAge how long it has been in force.
	Bundle    string
	BundleAge time.Duration
	// OnDisk is the digest of the files as they were read last.
	OnDisk string
	// Unavailable is how many tenants there are whose files do not load.
	Unavailable int
	// BundleRefused is set while a later bundle is refused.
	BundleRefused bool
	// KeysRefused is how many API keys the file has in force that are not, because the decision log says otherwise.
	KeysRefused int
	// Log is the state of the decision log; nil without one.
	Log *decisionlog.Status
	// Witnesses are how it stands with the witnesses of the log; nil without any. QuorumAge is how long ago a quorum cosigned.
	Witnesses *witness.Status
	QuorumAge time.Duration
	// Pending is how many approval requests wait for people; nil if people are not asked.
	Pending *int
	// Cluster is the state of the cluster; nil without one.
	Cluster *Cluster
	// Live is how many capabilities have not ended; nil if there are none here, or if it is not known.
	Live *int
}

// Cluster are the values of a replica that keeps its state in etcd.
type Cluster struct {
	// OK is set while the state can be used, and Full while nothing new is begun.
	OK, Full bool
	// Members is how many replicas there are, this one among them, and Skew how far their clocks may differ.
	Members int
	Skew    time.Duration
	// Used and Quota are bytes of etcd; 0 if they are not known.
	Used, Quota int64
}

// Observe has metrics show the state of the service, until the registration is undone.
func (t *Telemetry) Observe(look func() State) (metric.Registration, error) {
	i := &instruments{meter: t.Meter}
	bundle := i.gauge("policy_service.bundle.info", "", "1, with the digest of the bundle in force.")
	onDisk := i.gauge("policy_service.bundle.on.disk", "", "1, with the digest of the bundle's files as they were read last.")
	age := i.secondsGauge("policy_service.bundle.age", "How long the bundle has been in force.")
	pending := i.gauge("policy_service.approvals.pending", "{request}", "Approval requests that wait for people.")
	live := i.gauge("policy_service.capabilities.live", "{capability}", "Capabilities that have not ended.")
	behind := i.secondsGauge("policy_service.log.journal.age", "The age of the oldest record that only the journal has; 0 if there is none.")
	always := []observed[State]{
		{i.gauge("policy_service.http.requests.active", "{request}", "Requests being answered."),
			func(State) int64 { return t.Requests.active.Load() }},
		{i.gauge("policy_service.exports.active", "{export}",
			"Readers of the whole decision log; there may be 4, and 2 of one caller."),
			func(s State) int64 { return int64(s.Exports) }},
		{i.gauge("policy_service.bundle.refused", "", "1 while a later bundle than the one in force is refused, else 0."),
			func(s State) int64 { return oneIf(s.BundleRefused) }},
		{i.gauge("policy_service.keys.refused", "{key}", "API keys that their file has in force and that are not, because the decision log says otherwise."),
			func(s State) int64 { return int64(s.KeysRefused) }},
		{i.gauge("policy_service.tenants.unavailable", "{tenant}", "Tenants whose files do not load, so that nothing is decided in them."),
			func(s State) int64 { return int64(s.Unavailable) }},
	}
	ofLog := []observed[*decisionlog.Status]{
		{i.gauge("policy_service.log.ok", "", "1 while the decision log can be written, else 0."),
			func(l *decisionlog.Status) int64 { return oneIf(l.OK) }},
		{i.gauge("policy_service.log.queue", "{call}", "Calls that wait to be written to the decision log."),
			func(l *decisionlog.Status) int64 { return int64(l.Queued) }},
		{i.gauge("policy_service.log.journal.records", "{record}", "Records that only the journal has, and no segment yet."),
			func(l *decisionlog.Status) int64 { return int64(l.Unfilled) }},
		{i.gauge("policy_service.log.size", "{record}", "Records in the decision log, those without content too."),
			func(l *decisionlog.Status) int64 { return int64(l.Size) }},
		{i.gauge("policy_service.log.disk", "By", "What the segments of the decision log take on disk."),
			func(l *decisionlog.Status) int64 { return l.Bytes }},
		{i.gauge("policy_service.log.recent", "By",
			"What records take that are too young to be dropped, of decision_log.retain.bytes; 0 without it."),
			func(l *decisionlog.Status) int64 { return l.Recent }},
		{i.gauge("policy_service.log.full", "", "1 while that is all that there may be, and nothing is decided, else 0."),
			func(l *decisionlog.Status) int64 { return oneIf(l.Full) }},
		{i.gauge("policy_service.log.segments", "{segment}", "Files of the decision log."),
			func(l *decisionlog.Status) int64 { return int64(l.Segments) }},
		{i.gauge("policy_service.log.unsigned", "{record}",
			"Records that the start found without a checkpoint and without a MAC: anybody may have written them."),
			func(l *decisionlog.Status) int64 { return int64(l.Unsigned) }},
		{i.total("policy_service.log.dropped",
			"Records of decisions that were answered and are not on record; best effort only."),
			func(l *decisionlog.Status) int64 { return int64(l.Dropped) }},
		{i.total("policy_service.log.refused",
			"Records that could not be written, and whose decisions were not answered."),
			func(l *decisionlog.Status) int64 { return int64(l.Refused) }},
	}
	quorum := i.secondsGauge("policy_service.log.witness.quorum.age", "How long ago a quorum of witnesses cosigned a checkpoint, or else the start was.")
	ofWitnesses := []observed[State]{
		{i.gauge("policy_service.log.witness.missing", "", "1 while no quorum cosigned for longer than decision_log.witnesses.patience, else 0."),
			func(s State) int64 { return oneIf(s.Witnesses.Missing) }},
		{i.gauge("policy_service.log.witness.records.behind", "{record}", "Records that no quorum of witnesses has cosigned yet."),
			func(s State) int64 { return int64(s.Log.Size) - int64(s.Witnesses.Size) }},
		{i.gauge("policy_service.log.witness.suspects", "{witness}", "Witnesses that know another log under the name of this one, or lie."),
			func(s State) int64 { return int64(s.Witnesses.Suspects()) }},
		{i.gauge("policy_service.log.witness.conflict", "", "1 if a checkpoint was found that bears the log's signature and is not of the log, else 0."),
			func(s State) int64 { return oneIf(s.Witnesses.Conflict) }},
	}
	skew := i.secondsGauge("policy_service.cluster.clock.skew", "How far the clocks of two replicas may differ at most, the delay of the message among it.")
	ofCluster := []observed[*Cluster]{
		{i.gauge("policy_service.cluster.ok", "", "1 while the state in etcd can be used, else 0."),
			func(c *Cluster) int64 { return oneIf(c.OK) }},
		{i.gauge("policy_service.cluster.members", "{replica}", "Replicas that are there, this one among them."),
			func(c *Cluster) int64 { return int64(c.Members) }},
		{i.gauge("policy_service.cluster.full", "", "1 while etcd has used so much of its quota that nothing new is filed, else 0."),
			func(c *Cluster) int64 { return oneIf(c.Full) }},
		{i.gauge("policy_service.cluster.etcd.used", "By", "What etcd takes on disk."),
			func(c *Cluster) int64 { return c.Used }},
		{i.gauge("policy_service.cluster.etcd.quota", "By", "What etcd may take on disk."),
			func(c *Cluster) int64 { return c.Quota }},
	}
	if i.err != nil {
		return nil, i.err
	}
	return t.Meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := look()
		if s.Cluster != nil {
			o.ObserveFloat64(skew, s.Cluster.Skew.Seconds())
			for _, one := range ofCluster {
				o.ObserveInt64(one.instrument, one.value(s.Cluster))
			}
		}
		o.ObserveInt64(bundle, 1, metric.WithAttributes(attribute.String("bundle", s.Bundle)))
		o.ObserveInt64(onDisk, 1, metric.WithAttributes(attribute.String("bundle", s.OnDisk)))
		o.ObserveFloat64(age, s.BundleAge.Seconds())
		for _, one := range always {
			o.ObserveInt64(one.instrument, one.value(s))
		}
		if s.Pending != nil {
			o.ObserveInt64(pending, int64(*s.Pending))
		}
		if s.Live != nil {
			o.ObserveInt64(live, int64(*s.Live))
		}
		if s.Witnesses != nil {
			o.ObserveFloat64(quorum, s.QuorumAge.Seconds())
			for _, one := range ofWitnesses {
				o.ObserveInt64(one.instrument, one.value(s))
			}
		}
		if s.Log != nil {
			o.ObserveFloat64(behind, s.Log.Behind.Seconds())
			for _, one := range ofLog {
				o.ObserveInt64(one.instrument, one.value(s.Log))
			}
		}
		return nil
	}, i.observable...)
}

// ObserveCertificate has metrics show when the certificate that clients are shown ends, until the registration is undone.
func (t *Telemetry) ObserveCertificate(notAfter func() time.Time) (metric.Registration, error) {
	i := &instruments{meter: t.Meter}
	ends := i.secondsGauge("policy_service.tls.certificate.not_after", "When the certificate that clients are shown ends, in seconds since 1970.")
	if i.err != nil {
		return nil, i.err
	}
	return t.Meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveFloat64(ends, float64(notAfter().Unix()))
		return nil
	}, i.observable...)
}

// observed is an instrument with the part of a state that it shows.
type observed[S any] struct {
	instrument metric.Int64Observable
	value      func(S) int64
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
