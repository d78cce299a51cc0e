// Package doctor looks at a machine as a server will meet it, and names the dangers: call [Examine] with the configuration of
// serve. It asks the same functions as the start of a server, and adds what a start does not refuse: a log in memory, a
// clock that was set back, an issuer that does not answer.
//
// It writes nothing, and asks only the issuer of the console, the witnesses of the log and etcd. It holds no lock: a server can
// start, run and stop meanwhile. If the log changed while the doctor read it, the doctor drops these findings and reads it
// again.
//
// Something new is a type with the method Findings ([finding.Looked]), in a file here, and a line in Examine, where a start would come
// to it.
package doctor

import (
	"cmp"
	"context"
	"time"

	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
)

// Patient is a server that is to run, or runs already.
type Patient struct {
	// Config is the configuration of the server; Source is not looked at.
	Config server.Config
	// ConfigErr is the reason why Config is not whole.
	ConfigErr error
}

// Examine looks at everything, in the order of a start. It takes as long as a bundle takes to load.
func Examine(ctx context.Context, p Patient) (all finding.List) {
	c := &p.Config
	c.Listen = cmp.Or(c.Listen, server.DefaultListen)
	now := c.Program.PDP.Now
	if now == nil {
		now = time.Now
	}
	said := c.Findings()
	data := openDirectory(c.Data)
	shared := openCluster(ctx, c, said)
	held := openAPIKeys(ctx, c, shared)
	all = finding.Of(ctx, configuration{c, p.ConfigErr, said, now()}, policies{c, now()}, data, shared)
	for tries := 3; ; tries-- {
		before, was := data.mark()
		log := openLog(data)
		found := finding.Of(ctx, apiKeys{held, c, data, shared, log}, log, witnesses{c.DecisionLog.Witnesses, log, now()}, approvals{data, log},
			capabilities{c, data, log}, clock{log, now()}, disk{data, said}, address{c, held, log.running()})
		log.close()
		// All of the log stayed as it was, or its sealed segments while a server runs. A removal replaces sealed segments.
		after, is := data.mark()
		settled := after == before && was == is && (log.reader == nil || log.running() == is)
		if !settled && tries > 1 {
			continue
		}
		if !settled {
			none := &decisionLog{} // what was read of it, or compared with it, may be of two moments, and so may numbers
			found = finding.Of(ctx, apiKeys{held, c, data, shared, none}, disk{data, said}, address{c, held, is})
			for _, f := range finding.Of(ctx, approvals{data, none}, capabilities{c, data, none}) {
				if f.Bites {
					found = append(found, f)
				}
			}
			found.Bites("log", "look again", "a server writes to it, and its files changed each time that they were read, so the log, its witnesses and the clock could not be examined")
		}
		return append(append(all, found...), finding.Of(ctx, console{c, held, said})...)
	}
}
