// Package doctor looks at a machine as a server will meet it, and names the dangers: call [Examine] with the arguments of
// serve. It asks the same functions as the start of a server, and looks for a few dangers that a start does not refuse: a
// log in memory, a clock that was set back, an issuer that does not answer.
//
// It writes nothing, and asks only the issuer of the console and the witnesses of the log. It holds no lock: a server can
// start, run and stop meanwhile. If the log changed while the doctor read it, the doctor drops these findings and reads it
// again.
package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/listener"
)

// Finding is the result of one look.
type Finding struct {
	// Check is configuration, bundle, data, keys, log, witnesses, approvals, capabilities, clock, disk, listen or console. More may come.
	Check string `json:"check"`
	// Bites is set if something is to be done.
	Bites bool `json:"bites"`
	// Message is the result, and if it bites, its consequence.
	Message string `json:"message"`
	// Try is the remedy; empty if nothing bites.
	Try string `json:"try,omitzero"`
}

// Report gathers findings.
type Report struct{ Findings []Finding }

// OK adds a finding that is good.
func (r *Report) OK(check, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Check: check, Message: fmt.Sprintf(format, args...)})
}

// Bites adds a finding with its remedy.
func (r *Report) Bites(check, try, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{check, true, fmt.Sprintf(format, args...), try})
}

// Wrong adds a finding for each line of an error, which is "mistake; remedy".
func (r *Report) Wrong(check string, err error) {
	for line := range strings.Lines(err.Error()) {
		message, try, _ := strings.Cut(strings.TrimSpace(line), "; ")
		r.Bites(check, try, "%s", message)
	}
}

// Certificate looks at the certificate of a listener and its key. Without one there is nothing to look at.
func (r *Report) Certificate(files server.TLSFiles, now time.Time) {
	const check = "configuration"
	if files.CertFile == "" {
		return
	}
	leaf, err := files.Leaf()
	if err != nil {
		r.Wrong(check, err)
		return
	}
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch left := leaf.NotAfter.Sub(now); {
	case left <= 0:
		r.Bites(check, "renew it; a changed file counts without a restart", "the certificate %s ended on %s, and clients refuse it", files.CertFile, end)
	case left < listener.RenewBefore(leaf):
		r.Bites(check, "renew it, and see why that did not happen by itself; a changed file counts without a restart", "the certificate %s ends on %s, and clients will refuse it then", files.CertFile, end)
	default:
		r.OK(check, "the certificate %s is good until %s", files.CertFile, end)
	}
	if info, err := os.Stat(files.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		r.Bites(check, "chmod 600 it, and get another if anybody may have read it", "the key %s is open to every user of this machine (mode %#o)", files.KeyFile, info.Mode().Perm())
	}
}

// Patient is a server that is to run, or runs already.
type Patient struct {
	// Policies is the directory of the bundle.
	Policies string
	// Config is the configuration of the server; Source is not looked at.
	Config server.Config
	// ConfigErr is the reason why Config is not whole.
	ConfigErr error
}

// Examine looks at everything, always in the same order. It takes as long as a bundle takes to load.
func Examine(ctx context.Context, p Patient) []Finding {
	x := &exam{Patient: p, ctx: ctx, data: p.Config.Data}
	for _, look := range []func(){x.configuration, x.bundle, x.dataDirectory, x.cluster, x.keys} {
		look()
	}
	found := len(x.Findings)
	for tries := 3; !x.settled(x.log, x.witnesses, x.approvals, x.capabilities, x.clock, x.disk, x.listen); tries-- {
		x.Findings, x.reader, x.newest = x.Findings[:found], nil, time.Time{}
		if tries == 1 {
			x.OK("log", "a server writes to it, and its files changed each time that they were read; look again")
			x.disk()
			break
		}
	}
	x.console()
	return x.Findings
}

// settled runs looks that read the log, or compare something with it, and reports whether what they read stayed as it was:
// all of the log, or its sealed segments while a server runs. A removal replaces sealed segments.
func (x *exam) settled(looks ...func()) bool {
	before, was := segment.Mark(x.data)
	for _, look := range looks {
		look()
	}
	if x.reader != nil {
		_ = x.reader.Close()
	}
	now, live := segment.Mark(x.data)
	return now == before && live == was && (x.reader == nil || x.reader.Partial() == live)
}

// exam is one examination.
type exam struct {
	Patient
	Report
	ctx    context.Context
	data   string // "" without a data directory
	exists bool   // the data directory does
	reader *segment.Reader
	joined bool      // replicas have joined the cluster
	newest time.Time // the last time that the log knows; zero if it knows none
}

// now is the clock that the server would read.
func (x *exam) now() time.Time {
	if x.Config.Program.PDP.Now != nil {
		return x.Config.Program.PDP.Now()
	}
	return time.Now()
}
