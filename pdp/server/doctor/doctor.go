// Package doctor looks at a machine as a server will meet it, and says what would
// bite: call [Examine] with what serve is given. It knows the places where a
// service fails weeks after it was set up, at night: a key nobody can read, a disk
// that is full on Sunday, a log in memory, a clock that was set back.
//
// It mends nothing. All it ever writes is one file into the data directory, which
// it removes; and it asks nobody but the address that the server is to listen on.
package doctor

import (
	"context"
	"strings"
	"time"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Check says what: configuration, bundle, data, keys, log, approvals, clock, disk, listen,
	// files, memory, processors. More may come.
	Check string `json:"check"`
	// Bites is whether something is to be done.
	Bites bool `json:"bites"`
	// Message is what was found, and where it bites, what will come of it.
	Message string `json:"message"`
	// Try is what to do; empty where nothing bites.
	Try string `json:"try,omitzero"`
}

// Patient is a server that is to run, or runs already.
type Patient struct {
	// Policies is the directory of the bundle.
	Policies string
	// Config is what the server is told; Source is not looked at.
	Config server.Config
	// ConfigErr is why Config is not whole.
	ConfigErr error
	// Built is when the program was, as far as that is known: no clock can be before it.
	Built time.Time
}

// Examine looks at everything, always in the same order. It takes as long as a
// bundle takes to load, and a second or two.
func Examine(ctx context.Context, p Patient) []Finding {
	x := &exam{Patient: p, ctx: ctx, data: p.Config.Data}
	for _, look := range []func(){
		x.configuration, x.bundle, x.dataDirectory, x.keys, x.log, x.approvals, x.clock, x.disk, x.listen, x.console, x.files, x.memory, x.processors,
	} {
		look()
	}
	if x.reader != nil {
		_ = x.reader.Close()
	}
	return x.findings
}

// exam is one examination.
type exam struct {
	Patient
	ctx      context.Context
	data     string // "" without a data directory
	exists   bool   // the data directory does
	reader   *decisionlog.Reader
	newest   time.Time // the last that the log knows; zero where it knows nothing
	findings []Finding
}

func (x *exam) ok(check, message string) {
	x.findings = append(x.findings, Finding{Check: check, Message: message})
}

func (x *exam) bites(check, message, try string) {
	x.findings = append(x.findings, Finding{check, true, message, try})
}

// wrong takes an error apart that says "what; what to try", as all of ours do. One
// that is several is a finding each.
func (x *exam) wrong(check string, err error) {
	for line := range strings.Lines(err.Error()) {
		message, try, _ := strings.Cut(strings.TrimSpace(line), "; ")
		x.bites(check, message, try)
	}
}

// now is the clock that the server would read.
func (x *exam) now() time.Time {
	if x.Config.Program.PDP.Now != nil {
		return x.Config.Program.PDP.Now()
	}
	return time.Now()
}
