package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/mcp"
	"policy-service/pdp/spelling"
)

// checkPolicies holds the policies against the locked tools: by what each names, and by what it reads of calls.
func (k *checker) checkPolicies() {
	if k.locked == nil || k.bundle == nil || k.told.Mappings[toolsCall] != nil { // which asks as nobody but its author knows
		return
	}
	for _, p := range k.bundle.Contents() {
		k.checkNamed(p)
		k.checkGroups(p)
		of := slices.DeleteFunc(k.locked.sorted(), func(t *tool) bool { return !k.mayBeAbout(p, t) })
		if len(of) == 0 {
			continue
		}
		k.checkArguments(p, of)
		for _, o := range p.Obligations {
			if o.Type.Name == "redact" {
				k.checkRedact(p, o, of)
			}
			k.checkRounds(p, o, of)
		}
	}
}

// atPolicy is the place of a policy. What is wrong with a forbid is a problem, because it forbids less than it says.
func (k *checker) atPolicy(p pdp.PolicyContents, warning bool, what, try string) {
	k.add(k.found(p, warning || p.Effect != "forbid", what, try))
}

func (k *checker) found(p pdp.PolicyContents, warning bool, what, try string) finding {
	what = fmt.Sprintf("%s %q %s", p.Effect, p.ID, what)
	return finding{file: inDir(k.dir, p.File), line: p.Line, column: p.Column, warning: warning, what: what, try: try}
}

// checkNamed looks for tools that a policy names and that are not locked.
func (k *checker) checkNamed(p pdp.PolicyContents) {
	tested := map[evaluation.Ref]bool{} // by whether the entity itself must be it
	for _, t := range p.Tested {
		for _, ref := range t.Any {
			tested[ref] = tested[ref] || t.Only
		}
	}
	for _, ref := range slices.Compact(slices.SortedFunc(slices.Values(p.Names), byName)) {
		only, leads := tested[ref]
		what, try, absent := k.deadName(ref, only)
		warning := true
		switch {
		case what == "":
			continue
		case !leads:
		case p.Effect == "forbid":
			what, warning = what+": the forbid never fires for it", false
		default:
			what += ": the permit permits nothing by it"
		}
		if f := k.found(p, warning, what, try); absent == "" {
			k.add(f)
		} else {
			k.absent[absent] = append(k.absent[absent], f)
		}
	}
}

// checkAbsent has one line for each server that policies and declarations name and that is not in the lock. Of one that the
// configuration has, [checker.checkConfig] says so.
func (k *checker) checkAbsent() {
	for server, all := range k.absent {
		if _, known := k.told.Upstreams[server]; known {
			continue
		}
		one := all[max(0, slices.IndexFunc(all, func(f finding) bool { return !f.warning }))]
		if len(all) > 1 {
			one.what += ", and so in " + cli.Plural(len(all)-1, "more place")
		}
		k.add(one)
	}
}

func byName(a, b evaluation.Ref) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
}

// deadName says why no question names an entity, "" if one may, and the server if it is that which is not there. Only is that
// it is no group.
func (k *checker) deadName(ref evaluation.Ref, only bool) (what, try, absent string) {
	server, name, ofServer := strings.Cut(ref.ID, ":")
	of := ref.Type + "::" + fmt.Sprintf("%q", ref.ID)
	switch {
	case ref.Type == "Action" && ref.ID == "tool.invoke" && only && k.asks(byTool):
		return "wants the action to be " + of + ", and ask: tool has an action for each tool", "write action in " + of, ""
	case ref.Type != "tool" && ref.Type != "Action":
		return "", "", ""
	case ref.Type == "tool" && only && !ofServer && k.asks(byTool, byInvoke):
		return "names " + of + ", and in questions a tool is called server:name", k.locked.whose(ref.ID), ""
	case !ofServer || k.asks(byBinding):
		return "", "", ""
	}
	if _, known := k.locked.file.Servers[server]; !known {
		near, ok := spelling.Nearest(server, k.servers())
		if ref.Type == "Action" && !ok { // it is of another application
			return "", "", ""
		}
		if try = "correct the name of the upstream"; ok {
			try = "did you mean " + near + "?"
		}
		return "names " + of + ", and there is no server " + fmt.Sprintf("%q", server) + " in the lock", try, server
	}
	switch {
	case name == "*":
		return "", "", ""
	case k.locked.all[ref.ID] == nil:
		return "names " + of + ", which is not locked", k.locked.meant(ref.ID, "correct the name, or take the rule out"), ""
	case ref.Type == "Action" && k.asks(byInvoke):
		return "names " + of + ", and by ask: tool.invoke the action of every call is tool.invoke", "set ask: tool, or write resource == tool::" + fmt.Sprintf("%q", ref.ID), ""
	}
	return "", "", ""
}

func (k *checker) servers() []string {
	var all []string
	for name := range k.locked.file.Servers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// checkArguments looks for arguments that a policy reads and that none of the tools has that it may be about.
func (k *checker) checkArguments(p pdp.PolicyContents, of []*tool) {
	asked, read, spares := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range p.Spares {
		spares[s.String()] = true
	}
	for _, r := range p.Reads {
		if r.Has {
			asked[r.String()] = true
		} else {
			read[r.String()] = true
		}
	}
	told := map[string]bool{}
	for _, r := range p.Reads {
		if r.Root != "context" || len(r.Names) < 2 || r.Names[0] != "arguments" {
			continue
		}
		text, missing := r.String(), undeclaredIn(of, r.Names[1:], func(t *tool) evaluation.Object { return t.input })
		if missing == "" || told[text] {
			continue
		}
		told[text] = true
		what, try := "reads "+text+", which "+named(of)+" does not have", meantArgument(of, missing)
		switch {
		case spares[text] && p.Effect == "permit":
			k.add(k.found(p, false, what+": no exception is made by it, and it permits more", try))
			continue
		case spares[text]:
			k.add(k.found(p, true, what+": no exception is made by it, and it forbids more", try))
			continue
		case p.Effect != "forbid":
			what += ": it permits nothing by it"
		case read[text] && !asked[text]:
			what += ": the forbid fails on each call"
		default:
			what += ": the forbid never fires by it"
		}
		k.atPolicy(p, false, what, try)
	}
}

// named are the tools of a finding.
func named(of []*tool) string {
	if len(of) == 1 {
		return of[0].id
	}
	return fmt.Sprintf("any of %d tools", len(of))
}

// undeclaredIn is what none of the tools declares along a path, "" if one may.
func undeclaredIn(of []*tool, path []string, schema func(*tool) evaluation.Object) (missing string) {
	for _, t := range of {
		if missing = coaz.Undeclared(schema(t), path); missing == "" {
			return ""
		}
	}
	return missing
}

func meantArgument(of []*tool, missing string) string {
	var all []string
	for _, t := range of {
		properties, _ := t.input.Get("properties")
		for name := range properties.Object().All {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	if near, ok := spelling.Nearest(missing, slices.Compact(all)); ok {
		return "did you mean " + near + "?"
	}
	return "correct the name, or take it out"
}

// checkRedact looks for fields that are to be taken out of results, and that no tool says that its results have.
func (k *checker) checkRedact(p pdp.PolicyContents, o *obligations.Definition, of []*tool) {
	of = slices.DeleteFunc(slices.Clone(of), func(t *tool) bool { return t.output.Len() == 0 })
	fields, _ := o.Properties.Get("fields")
	for _, f := range fields.Elements {
		path := evaluation.Tokens(f.Text())
		if n := slices.Index(path, "*"); n >= 0 {
			path = path[:n]
		}
		if len(of) == 0 || strings.Contains(f.Text(), "${") {
			continue
		}
		if missing := undeclaredIn(of, path, func(t *tool) evaluation.Object { return t.output }); missing != "" {
			k.atPolicy(p, true, fmt.Sprintf("obliges to redact %s (%s), which the outputSchema of %s does not have", f.Text(), o.Name, named(of)), "correct the field in obligations.yaml: without it nothing is taken out")
		}
	}
}

// checkRounds looks for an approval of a call alone, where the server of the tool may ask for something before it answers: the
// call ends then. No server says beforehand that it will.
func (k *checker) checkRounds(p pdp.PolicyContents, o *obligations.Definition, of []*tool) {
	terms, ok := obligations.TermsOf(evaluation.Obligation{Type: o.Type.Name, Properties: o.Properties})
	n := slices.IndexFunc(of, func(t *tool) bool {
		r := k.told.Upstreams[t.server].ServerRequests
		return slices.Contains([]mcp.Relay{r.Elicitation, r.Sampling, r.Roots}, mcp.RelayOn)
	})
	if ok && terms.Rounds == 0 && n >= 0 {
		k.atPolicy(p, true, fmt.Sprintf("demands an approval without rounds (%s), and the server of %s may ask for something before it answers (server_requests): such a call ends", o.Name, of[n].id),
			"set rounds in obligations.yaml if follow-up questions belong to what is approved")
	}
}
