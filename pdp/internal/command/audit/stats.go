package audit

import (
	"fmt"
	"strings"
	"time"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/report"
)

type statsCommand struct {
	logFlags
	JSON bool `name:"json" help:"Print JSON, for programs."`
}

// Run counts, which reads the whole log once.
func (c statsCommand) Run(s cli.Streams) error {
	stats, err := find(c.logFlags, "count the records", auditLog.Stats)
	if err != nil {
		return err
	}
	if c.JSON {
		return s.PrintJSON(stats)
	}
	return printStats(s, stats)
}

func printStats(s cli.Streams, st report.Statistics) error {
	table := s.Table()
	row := func(name, format string, args ...any) { table.Row(name, fmt.Sprintf(format, args...)) }
	row("log", "%s", st.Origin)
	row("records", "%d%s", st.Size, cli.Counts(": ", st.Kinds, ""))
	row("decisions", "%s", answersOf(st.Allowed, st.Waiting, st.Denied, st.Possible, st.Impossible))
	if !st.First.IsZero() {
		row("from", "%s", st.First.UTC().Format(time.RFC3339))
		row("to", "%s", st.Last.UTC().Format(time.RFC3339))
	}
	if st.WholeLog == nil {
		row("bytes", "%d of records", st.Bytes)
		row("tenants", "%s only", strings.Join(st.Tenants, ", "))
		return table.Flush()
	}
	row("bytes", "%d of records, %d on disk in %s", st.Bytes, st.Disk, cli.Plural(len(st.Segments), "segment"))
	for _, gap := range st.Gaps {
		row(gap.Why, "%d to %d", gap.First, gap.Next-1)
	}
	for _, line := range unread(st.Unread) {
		row("not here", "%s", line)
	}
	return table.Flush()
}
