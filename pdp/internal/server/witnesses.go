package server

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/witness"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/config"
)

// WitnessesConfig says which witnesses cosign the decision log.
type WitnessesConfig struct {
	PolicyFile string        `yaml:"policy_file" doc:"A file of C2SP tlog-policy: the witnesses with their keys and URLs, and the quorum. Each witness learns the origin of the log, its size and its root, again and again."`
	Every      time.Duration `yaml:"every" default:"10s" min:"1s" max:"1h" doc:"How often the newest checkpoint is submitted to the witnesses, and how long they have to answer."`
	Patience   time.Duration `yaml:"patience" default:"5m" min:"2s" doc:"How long the quorum may be missing."`
	Required   bool          `yaml:"required" doc:"After patience, nothing is answered until there is a quorum again: 503. Otherwise, /readyz is degraded, and an alert says so."`
	// Monitoring is by the names in the policy.
	Monitoring map[string]string `yaml:"monitoring" doc:"By the name of a witness in the policy, the URL below which it shows the last checkpoint of each log. It is asked if the witness says that it knows another log."`
}

const keyWitnesses = "decision_log.witnesses"

// check looks for mistakes in the values of the section.
func (c *WitnessesConfig) check(r *config.Reading, mode decisionlog.Mode) {
	if c == nil {
		return
	}
	at := func(key string) string { return keyWitnesses + "." + key }
	if c.PolicyFile == "" {
		r.Addf(keyWitnesses, "%s names no witnesses; add policy_file, or leave it out", keyWitnesses)
	}
	if c.Patience < 2*c.Every {
		r.Addf(at("patience"), "%s is %v, and a checkpoint is submitted every %v; write twice that at least", at("patience"), c.Patience, c.Every)
	}
	if c.Required && mode == decisionlog.BestEffort {
		r.Addf(at("required"), "%s needs answers that wait for their records, and decision_log.mode is best_effort; write strict, or leave it out", at("required"))
	}
	for _, label := range slices.Sorted(maps.Keys(c.Monitoring)) {
		if err := witness.Check(c.Monitoring[label]); err != nil {
			r.Addf(at("monitoring"), "%s: %w", config.Entry(at("monitoring"), label), err)
		}
	}
}

// Policy reads the policy. Its errors name the file and the line.
func (c *WitnessesConfig) Policy() (*c2sp.Policy, error) {
	text, err := plainfile.Read(c.PolicyFile, c2sp.MaxPolicyBytes)
	if err != nil {
		return nil, fmt.Errorf("%s.policy_file: %w", keyWitnesses, err)
	}
	p, err := c2sp.ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s.policy_file: %s: %w", keyWitnesses, c.PolicyFile, err)
	}
	wrong := func(line int, format string, args ...any) error {
		return fmt.Errorf("%s.policy_file: %s: line %d: %w", keyWitnesses, c.PolicyFile, line, fmt.Errorf(format, args...))
	}
	var errs []error
	if p.QuorumName == c2sp.None {
		errs = append(errs, wrong(p.QuorumLine, "the quorum is none; name a witness or a group, or leave out %s", keyWitnesses))
	}
	known := map[string]bool{}
	for _, one := range p.Witnesses {
		known[one.Label] = true
		if err := witness.Check(one.URL); err != nil {
			errs = append(errs, wrong(one.Line, "the witness %s: %w", one.Label, err))
		}
	}
	for _, label := range slices.Sorted(maps.Keys(c.Monitoring)) {
		if !known[label] {
			errs = append(errs, fmt.Errorf("%s: there is no witness of that name in %s", config.Entry(keyWitnesses+".monitoring", label), c.PolicyFile))
		}
	}
	return p, errors.Join(errs...)
}

// logName returns the name of a log that begins now. After a restore the old log may have had the name that public_url gives:
// a second log of that name would be a fork of it, to witnesses and to everybody else.
func logName(c *Config) string {
	if c.Cluster != nil {
		return c.Cluster.Origin // replicas have one public_url
	}
	if _, err := os.Stat(filepath.Join(c.Data, RestoredDir)); err == nil {
		return ""
	}
	return logOrigin(c.PublicURL)
}

// openWitnesses makes the witnesses of an open log, and asks none.
func (d *decisionLog) openWitnesses(policy *c2sp.Policy) (err error) {
	c := d.config.DecisionLog.Witnesses
	keys, err := segment.VerifierKeys(d.config.Data)
	if err != nil {
		return err
	}
	listed := func(key string) bool {
		return slices.ContainsFunc(policy.Logs, func(l c2sp.LogKey) bool { return l.Text == key })
	}
	switch inForce := keys[len(keys)-1]; {
	case len(policy.Logs) == 0 || listed(inForce):
	case slices.ContainsFunc(keys, listed):
		d.base.log.Warn("the policy of the witnesses has keys of this log, and not the one in force; add it there, and have witnesses add it", "key", inForce)
	default:
		return fmt.Errorf("%s.policy_file: %s has the keys of logs, and not that of this one; add a line log %s", keyWitnesses, c.PolicyFile, inForce)
	}
	d.witnesses, err = witness.New(witness.Options{
		Log:        d.Log,
		Data:       d.config.Data,
		Policy:     policy,
		Monitoring: c.Monitoring,
		Every:      c.Every,
		Patience:   c.Patience,
		Required:   c.Required,
		Now:        d.now,
		Count:      d.telemetry.Log.Witnessed(policy),
		Logger:     d.base.log,
	})
	if err == nil {
		d.lifetime.add("witnesses' connections", closing(d.witnesses.Close))
	}
	return err
}
