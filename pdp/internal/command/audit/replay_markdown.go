package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/replay"
	"policy-service/pdp/internal/visible"
)

// markdown prints the outcome as a comment on a pull request. Ids come from requests: each stands in code, on one line, so that none
// can end its place in the table, or mention anybody.
func (c ReplayCommand) markdown(s cli.Streams, r replayed) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("**%d of %s change.**", r.changed(), cli.Plural(int(r.Decisions), "decision"))
	line("")
	line("| class | decisions |")
	line("|---|---:|")
	for _, class := range replay.Classes {
		line("| %s | %d |", class, r.Changed[class])
	}
	line("| unknown, by a masked value | %d |", r.Unknown)
	line("| votes that are lost | %d |", r.Votes.Lost)
	for _, why := range slices.Sorted(maps.Keys(r.Incomplete)) {
		line("| not judged: %s | %d |", replay.Why(why), r.Incomplete[why])
	}
	groups, more := first(r.Groups, c.All)
	for n, g := range groups {
		line("")
		line("**%d. %s: %s**", n+1, g.Class, cli.Plural(int(g.Decisions), "decision"))
		line("")
		line("| | |")
		line("|---|---|")
		line("| from | %s |", code(outcomeText(g.From)))
		line("| to | %s |", code(outcomeText(g.To)))
		for _, cause := range g.Cause {
			line("| because | %s |", code(causeText(cause)))
		}
		line("| subjects | %s |", code(countsText(g.Subjects)))
		line("| resources | %s |", code(countsText(g.Resources)))
		line("| actions | %s |", code(countsText(g.Actions)))
		line("| such as | %s |", code(strings.Join(g.Examples, ", ")))
	}
	if more > 0 {
		line("")
		line("And %s more.", cli.Plural(more, "group"))
	}
	lost, more := first(r.Votes.By, c.All)
	for _, l := range lost {
		line("")
		line("**lost: %s**", cli.Plural(int(l.Votes), "vote"))
		line("")
		line("| | |")
		line("|---|---|")
		line("| lost | %s |", code(lostText(l)))
		for _, cause := range l.Cause {
			line("| because | %s |", code(causeText(cause)))
		}
		line("| such as | %s |", code(strings.Join(l.Examples, ", ")))
	}
	if more > 0 {
		line("")
		line("And lost votes of %s more.", cli.Plural(more, "group"))
	}
	_, err := fmt.Fprint(s.Out, b.String())
	return err
}

// code is a text as code in a cell of a table. A cell ends at a bar, in code too, and code at as many backquotes as it began
// with.
func code(text string) string {
	text = visible.Text(text)
	text = strings.NewReplacer("|", "¦", "\n", " ", "\r", " ").Replace(text)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + " " + text + " " + fence
}
