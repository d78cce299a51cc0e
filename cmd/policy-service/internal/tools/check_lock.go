package tools

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp"
)

// checkLock holds the lock against the configuration, and looks for what is doubtful in what servers declare.
func (k *checker) checkLock() {
	if k.locked == nil {
		if k.lockFile == "" {
			k.add(finding{file: k.file, warning: true, what: "nothing is locked, so mappings and policies are held against no tools", try: "write a lock with policy-service mcp lock, and name it by lock.file or --lock"})
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(k.locked.file.Servers)) {
		if _, known := k.told.Upstreams[name]; !known {
			k.add(finding{
				file: k.lockFile, pointer: pointerTo("servers", name), warning: true, what: fmt.Sprintf("the configuration has no upstream %q", name),
				try: "lock again without it, or correct the name",
			})
		}
	}
	all := k.locked.sorted()
	k.checkCompiled(all)
	if binding, err := k.told.Binding(); err == nil && k.told.Declared != mcp.DeclaredIgnore {
		for _, t := range all {
			k.checkDeclared(binding, t)
		}
	}
	for _, t := range all {
		k.checkHint(t)
	}
}

// checkCompiled finds tools that the gateway would leave out.
func (k *checker) checkCompiled(all []*tool) {
	defined := make([]mcp.Tool, len(all))
	for n, t := range all {
		defined[n] = mcp.Tool{Server: t.server, Definition: k.locked.file.Servers[t.server].Tools[t.name].Text()}
	}
	left, err := mcp.Compile(k.told, defined)
	if err != nil {
		k.add(finding{file: k.file, what: err.Error(), try: "mend the configuration"})
		return
	}
	for n, err := range left {
		var ofMapping *coaz.Error
		if err != nil && !errors.As(err, &ofMapping) { // which is told at its place
			k.atTool(all[n], "", false, "the tool is neither listed nor callable: "+err.Error(), "have the server's author mend the definition")
		}
	}
}

// checkDeclared looks at the mapping that a tool declares.
func (k *checker) checkDeclared(binding *coaz.Binding, t *tool) {
	_, err := binding.Parse(t.definition)
	for _, p := range binding.Lint(t.definition) {
		if !k.reads(p.Pointer) {
			continue
		}
		what, try := "the mapping that the tool declares: "+expression(p)+p.Detail, "have the server's author mend it, or set declared: ignore"
		warning := !p.Undeclared
		if refused := (*coaz.Error)(nil); errors.As(err, &refused) && strings.HasSuffix(p.Pointer, refused.Pointer) && p.Detail == refused.Detail {
			warning, what = false, what+", so the tool is neither listed nor callable"
		}
		k.atTool(t, p.Pointer, warning, what, try)
	}
}

// reads reports whether mappings are read in the dialect of a place in a definition.
func (k *checker) reads(pointer string) bool {
	of := func(member, dialect string) bool {
		return strings.Contains(pointer, member) && k.told.Dialects != nil && !slices.Contains(k.told.Dialects, dialect)
	}
	return !of("x-authzen-mapping", "authzen") && !of("coaz", "sep")
}

// expression is where in an expression a problem is.
func expression(p coaz.Problem) string {
	switch {
	case p.Expression == "":
		return ""
	case p.Offset > 0:
		return fmt.Sprintf("%q at byte %d: ", p.Expression, p.Offset)
	}
	return fmt.Sprintf("%q: ", p.Expression)
}
