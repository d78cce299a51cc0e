package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/mcp"
)

// access finds declarations of access that no question of the gateway is about. They close nothing.
func (in *input) access() {
	if in.bundle == nil || in.config.Mappings[toolsCall] != nil { // then only the author of the mapping knows the questions
		return
	}
	for _, d := range in.bundle.Access() {
		place := in.inBundle(d.File, 0, 0)
		message := func(why string) string {
			return fmt.Sprintf("declares who may use the tools of %q, and %s: it closes nothing here", d.Owner, why)
		}
		if in.asks(byBinding) {
			in.refuse(place, message("ask: coaz has questions about calls that are not about the action tool.invoke"), "set ask: "+string(byInvoke))
		} else if in.isAbsent(d.Owner) {
			in.absent[d.Owner] = append(in.absent[d.Owner], problemAt(pdp.SeverityError, place, message(fmt.Sprintf("there is no server %q in the lock", d.Owner)),
				meant(d.Owner, in.locked.servers, "correct the owner, or the name of the upstream")))
		}
	}
}

// isAbsent reports whether a server is neither in the lock nor in the configuration: [input.servers] has those of the latter.
func (in *input) isAbsent(server string) bool {
	_, known := in.config.Upstreams[server]
	return in.locked != nil && !in.locked.has(server) && !known
}

// policies holds the policies against the locked tools: by the names in each, and by the arguments that it reads.
func (in *input) policies() {
	if in.locked != nil && in.bundle != nil && in.config.Mappings[toolsCall] == nil {
		for _, p := range in.bundle.Contents() {
			in.policy(p)
		}
	}
	for _, all := range in.absent { // one problem for each server
		one := all[max(0, slices.IndexFunc(all, func(p pdp.Problem) bool { return p.Severity == pdp.SeverityError }))]
		if len(all) > 1 {
			one.Message += ", and so in " + cli.Plural(len(all)-1, "more place")
		}
		in.add(one)
	}
}

func (in *input) policy(p pdp.PolicyContents) {
	in.dead(p)
	in.outside(p)
	about := slices.DeleteFunc(in.locked.sorted(), func(t *tool) bool { return !in.mayBeAbout(p, t) })
	if len(about) == 0 {
		return
	}
	in.arguments(p, about)
	for _, o := range p.Obligations {
		in.redacted(p, o, about)
		in.rounds(p, o, about)
	}
}

// of is a problem with a policy, at its place.
func (in *input) of(p pdp.PolicyContents, severity pdp.Severity, message, try string) pdp.Problem {
	return problemAt(severity, in.inBundle(p.File, p.Line, p.Column), fmt.Sprintf("%s %q %s", p.Effect, p.ID, message), try)
}

// dead finds entities that a policy names, and that no question has.
func (in *input) dead(p pdp.PolicyContents) {
	tested := map[evaluation.Ref]bool{} // by whether the entity itself must be it
	for _, t := range p.Tested {
		for _, ref := range t.Any {
			tested[ref] = tested[ref] || t.Only
		}
	}
	byName := func(a, b evaluation.Ref) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID)) }
	for _, ref := range slices.Compact(slices.SortedFunc(slices.Values(p.Names), byName)) {
		only, leads := tested[ref]
		message, try := in.deadName(ref, only)
		severity := pdp.SeverityWarning
		switch {
		case message == "":
			continue
		case !leads:
		case p.Effect == "forbid":
			message, severity = message+": the forbid never fires for it", pdp.SeverityError
		default:
			message += ": the permit permits nothing by it"
		}
		found := in.of(p, severity, message, try)
		if server, _, ofServer := strings.Cut(ref.ID, ":"); ofServer && in.isAbsent(server) {
			in.absent[server] = append(in.absent[server], found)
		} else {
			in.add(found)
		}
	}
}

// deadName says why no question names an entity; "" if one may. Only excludes groups.
func (in *input) deadName(ref evaluation.Ref, only bool) (message, try string) {
	server, name, ofServer := strings.Cut(ref.ID, ":")
	entity := fmt.Sprintf("%s::%q", ref.Type, ref.ID)
	switch {
	case ref.Type == "Action" && ref.ID == string(byInvoke) && only && in.asks(byTool):
		return "wants the action to be " + entity + ", and ask: tool has an action for each tool", "write action in " + entity
	case ref.Type != "tool" && ref.Type != "Action":
		return "", ""
	case ref.Type == "tool" && only && !ofServer && in.asks(byTool, byInvoke):
		of := slices.DeleteFunc(in.locked.sorted(), func(t *tool) bool { return t.name != ref.ID })
		if try = "write the name of its upstream in front"; len(of) == 1 {
			try = "did you mean " + of[0].id + "?"
		}
		return "names " + entity + ", and in questions a tool is called server:name", try
	case !ofServer || in.asks(byBinding):
		return "", ""
	case in.isAbsent(server):
		try = meant(server, in.locked.servers, "")
		if ref.Type == "Action" && try == "" { // it is of another application
			return "", ""
		}
		return fmt.Sprintf("names %s, and there is no server %q in the lock", entity, server), cmp.Or(try, "correct the name of the upstream")
	case name == "*", !in.locked.has(server):
		return "", ""
	case in.locked.all[ref.ID] == nil:
		return "names " + entity + ", which is not locked", meant(ref.ID, in.locked.ids, "correct the name, or take the rule out")
	case ref.Type == "Action" && in.asks(byInvoke):
		return "names " + entity + ", and by ask: tool.invoke the action of every call is tool.invoke", fmt.Sprintf("set ask: tool, or write resource == tool::%q", ref.ID)
	}
	return "", ""
}

// outside finds tools that a forbid is about by a group of actions, and whose own action is not in the group: with
// ask: tool, only a schema puts it there. A permit of this kind permits less than it says, which shows.
func (in *input) outside(p pdp.PolicyContents) {
	if p.Effect != "forbid" || !in.asks(byTool) {
		return
	}
	for _, test := range p.Tested {
		if test.Of != "action" || test.Only {
			continue
		}
		out := slices.DeleteFunc(in.locked.sorted(), func(t *tool) bool { return !in.escapes(p, test.Any, t) })
		if len(out) > 0 {
			in.add(in.of(p, pdp.SeverityError, fmt.Sprintf("is about a group of actions in which that of %s is not, as far as the bundle says: the forbid never fires for it", out[0].id),
				"write the schema of the tools into the bundle, with policy-service mcp schema -o tools.cedarschema"))
		}
	}
}

// escapes reports whether groups are meant to have a tool's action, and none of them has it.
func (in *input) escapes(p pdp.PolicyContents, groups []evaluation.Ref, t *tool) bool {
	intended := false
	for _, group := range groups {
		switch {
		case group.Type != "Action":
		case !in.bundle.Escapes(p.Tenant, in.actionOf(t), group.ID):
			return false
		case group.ID == string(byInvoke), group.ID == t.server+":*":
			intended = true
		}
	}
	return intended && in.mayBeAbout(p, t)
}

// arguments finds arguments that a policy reads, and that none of its tools has.
func (in *input) arguments(p pdp.PolicyContents, about []*tool) {
	reported := map[string]bool{}
	for _, r := range p.Reads {
		if r.Root != "context" || len(r.Names) < 2 || r.Names[0] != "arguments" {
			continue
		}
		text := r.String()
		missing := undeclaredIn(about, r.Names[1:], func(t *tool) evaluation.Object { return t.input })
		if missing == "" || reported[text] {
			continue
		}
		reported[text] = true
		severity, effect := effectOf(p, text)
		in.add(in.of(p, severity, "reads "+text+", which "+named(about)+" does not have: "+effect, meant(missing, argumentsOf(about), "correct the name, or take it out")))
	}
}

// effectOf is the effect of a policy that reads an attribute which is never there. A policy that permits more or
// forbids less than it says is an error.
func effectOf(p pdp.PolicyContents, text string) (severity pdp.Severity, effect string) {
	spared, asked, read := false, false, false
	for _, s := range p.Spares {
		spared = spared || s.String() == text
	}
	for _, r := range p.Reads {
		same := r.String() == text
		asked, read = asked || same && r.Has, read || same && !r.Has
	}
	switch permit := p.Effect == "permit"; {
	case spared && permit:
		return pdp.SeverityError, "no exception is made by it, and it permits more"
	case spared:
		return pdp.SeverityWarning, "no exception is made by it, and it forbids more"
	case permit:
		return pdp.SeverityWarning, "it permits nothing by it"
	case read && !asked:
		return pdp.SeverityError, "the forbid fails on each call"
	}
	return pdp.SeverityError, "the forbid never fires by it"
}

// named are the tools of a problem.
func named(all []*tool) string {
	if len(all) == 1 {
		return all[0].id
	}
	return fmt.Sprintf("any of %d tools", len(all))
}

// argumentsOf are the names of the arguments of tools.
func argumentsOf(all []*tool) (names []string) {
	for _, t := range all {
		properties, _ := t.input.Get("properties")
		for name := range properties.Object().All {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// redacted finds fields that are to be taken out of results, and that no tool declares in its results.
func (in *input) redacted(p pdp.PolicyContents, o *obligations.Definition, about []*tool) {
	about = slices.DeleteFunc(slices.Clone(about), func(t *tool) bool { return t.output.Len() == 0 })
	if o.Type.Name != "redact" || len(about) == 0 {
		return
	}
	fields, _ := o.Properties.Get("fields")
	for _, f := range fields.Elements {
		path := evaluation.Tokens(f.Text())
		if n := slices.Index(path, "*"); n >= 0 {
			path = path[:n]
		}
		if strings.Contains(f.Text(), "${") || undeclaredIn(about, path, func(t *tool) evaluation.Object { return t.output }) == "" {
			continue
		}
		in.add(in.of(p, pdp.SeverityWarning, fmt.Sprintf("obliges to redact %s (%s), which the outputSchema of %s does not have", f.Text(), o.Name, named(about)),
			"correct the field in obligations.yaml: without it nothing is taken out"))
	}
}

// rounds finds an approval of a single call, where the server of the tool may ask for more before it answers. The call ends
// then. No server announces it.
func (in *input) rounds(p pdp.PolicyContents, o *obligations.Definition, about []*tool) {
	terms, ok := obligations.TermsOf(evaluation.Obligation{Type: o.Type.Name, Properties: o.Properties})
	n := slices.IndexFunc(about, func(t *tool) bool {
		r := in.config.Upstreams[t.server].ServerRequests
		return slices.Contains([]string{r.Elicitation, r.Sampling, r.Roots}, mcp.RelayOn)
	})
	if ok && terms.Rounds == 0 && n >= 0 {
		in.add(in.of(p, pdp.SeverityWarning, fmt.Sprintf("demands an approval without rounds (%s), and the server of %s may ask for something before it answers (server_requests): such a call ends", o.Name, about[n].id),
			"set rounds in obligations.yaml if follow-up questions belong to what is approved"))
	}
}

// How calls are asked about.
const (
	byInvoke  = mcp.AskToolInvoke // by one action, of a tool that is called server:name
	byTool    = mcp.AskTool       // by an action for each tool
	byBinding = mcp.AskCOAZ       // as the binding has it, of a tool by the clients' name
)

func (in *input) asks(ways ...mcp.Ask) bool { return slices.Contains(ways, in.config.Ask) }

// mayBeAbout reports whether a policy could hold for calls of a tool, by the tests that it makes before all else.
func (in *input) mayBeAbout(p pdp.PolicyContents, t *tool) bool {
	return !slices.ContainsFunc(p.Tested, func(test pdp.PolicyTest) bool {
		return test.Of != "principal" && !slices.ContainsFunc(test.Any, func(ref evaluation.Ref) bool {
			if test.Of == "action" {
				return in.mayBeAction(ref.ID, test.Only, t)
			}
			return in.mayBeTool(ref, test.Only, t)
		})
	})
}

// mayBeAction reports whether an action is that of a tool's calls, or a group that could have it. Only excludes groups.
func (in *input) mayBeAction(id string, only bool, t *tool) bool {
	switch {
	case id == in.actionOf(t):
		return true
	case only, strings.Contains(id, "/"): // a method
		return false
	case in.asks(byTool) && (id == string(byInvoke) || id == t.server+":*"):
		return true
	}
	return !strings.Contains(id, ":") && id != string(byInvoke) // a group of the author's
}

// mayBeTool reports whether an entity is a tool, or a group that could have it. Only excludes groups.
func (in *input) mayBeTool(ref evaluation.Ref, only bool, t *tool) bool {
	if ref.Type == "tool" && (ref.ID == t.id || in.asks(byBinding)) {
		return true
	}
	return !only && (ref.Type != "tool" || in.locked.all[ref.ID] == nil)
}

// actionOf is the action of questions about a tool's calls.
func (in *input) actionOf(t *tool) string {
	switch {
	case in.asks(byTool):
		return t.id
	case in.asks(byBinding):
		return toolsCall
	}
	return string(byInvoke)
}
