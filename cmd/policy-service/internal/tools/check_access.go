package tools

import (
	"fmt"

	"policy-service/pdp/mcp"
	"policy-service/pdp/spelling"
)

// checkAccess looks for declarations of access that no question of the gateway is about. What they close stays open then, if
// another policy permits it.
func (k *checker) checkAccess() {
	if k.bundle == nil || k.told.Mappings[toolsCall] != nil { // which asks as nobody but its author knows
		return
	}
	for _, d := range k.bundle.Access() {
		closes := func(what, try string) finding {
			return finding{file: inDir(k.dir, d.File), what: "declares who may use the tools of " + fmt.Sprintf("%q", d.Owner) + ", and " + what + ": it closes nothing here", try: try}
		}
		if k.asks(byBinding) {
			k.add(closes("ask: coaz has questions about calls that are not about the action tool.invoke", "set ask: "+string(mcp.AskToolInvoke)))
			continue
		}
		if k.locked == nil {
			continue
		}
		if _, known := k.locked.file.Servers[d.Owner]; known {
			continue
		}
		try := "correct the owner, or the name of the upstream"
		if near, ok := spelling.Nearest(d.Owner, k.servers()); ok {
			try = "did you mean " + near + "?"
		}
		k.absent[d.Owner] = append(k.absent[d.Owner], closes(fmt.Sprintf("there is no server %q in the lock", d.Owner), try))
	}
}
