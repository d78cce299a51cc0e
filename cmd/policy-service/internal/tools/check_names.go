package tools

import (
	"fmt"
	"regexp"
	"strings"

	"policy-service/pdp/server/config"
)

// shownName is a tool that clients call otherwise than its server's name and its own would have it.
type shownName struct{ server, tool, shown string }

// plainName is a name that common clients take.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkNames looks for tools that clients would take for one another, or cannot call.
func (k *checker) checkNames() {
	if k.locked == nil {
		return
	}
	several := len(k.told.Upstreams) > 1
	before := map[string]*tool{}
	for _, t := range k.locked.sorted() {
		u, known := k.told.Upstreams[t.server]
		if !known || u.Tools[t.name].Hidden {
			continue
		}
		shown := k.told.ToolName(t.server, t.name)
		switch {
		case several && shown != t.server+"__"+t.name:
			k.shown = append(k.shown, shownName{t.server, t.name, shown})
		case !plainName.MatchString(shown):
			k.atTool(t, "/name", true, fmt.Sprintf("common clients take no tool that is called %q", t.name), "have the server's author choose a name of up to 64 letters, digits, _ and -")
		}
		alike := strings.ToLower(shown)
		if other := before[alike]; other != nil {
			k.atTool(t, "/name", false, fmt.Sprintf("clients would call it %s, and %s %s, which people take for one: neither is listed nor callable", shown, other.id, k.told.ToolName(other.server, other.name)),
				fmt.Sprintf("hide one: %s: {hidden: true}", config.Entry(config.Entry("upstreams", t.server)+".tools", t.name)))
			continue
		}
		before[alike] = t
	}
}
