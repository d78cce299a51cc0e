package tools

import (
	"maps"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp"
	"policy-service/pdp/server/config"
	"policy-service/pdp/spelling"
)

const toolsCall = "tools/call"

// checkConfig holds what the configuration says of tools against those that are locked.
func (k *checker) checkConfig() {
	if k.locked == nil {
		return
	}
	for _, server := range slices.Sorted(maps.Keys(k.told.Upstreams)) {
		path := config.Entry("upstreams", server)
		if _, locked := k.locked.file.Servers[server]; !locked {
			enforced := k.told.Lock.Mode == "" || k.told.Lock.Mode == mcp.LockEnforce
			k.atKey(path, "", !enforced, path+" is not in the lock", "look at its tools, and accept them with policy-service mcp lock --accept")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(k.told.Upstreams[server].Tools)) {
			if id := server + ":" + name; k.locked.all[id] == nil {
				at := config.Entry(path+".tools", name)
				k.atKey(at, "", false, at+": the server has no such tool in the lock", k.meantName(server, name))
			}
		}
	}
	binding, err := k.told.Binding()
	if err != nil {
		return // that is a mistake of the configuration
	}
	for _, key := range slices.Sorted(maps.Keys(k.told.Mappings)) {
		k.checkMapping(binding, key)
	}
}

// meantName is what to try if a server has no tool of a name.
func (k *checker) meantName(server, name string) string {
	if near, ok := spelling.Nearest(name, slices.Sorted(maps.Keys(k.locked.file.Servers[server].Tools))); ok {
		return "did you mean " + near + "?"
	}
	return "correct the name, or take it out"
}

// checkMapping holds a mapping of the operator's against the tools that it is for.
func (k *checker) checkMapping(binding *coaz.Binding, key string) {
	method, id, ofTool := strings.Cut(key, " ")
	if method != toolsCall {
		return
	}
	path := config.Entry("mappings", key)
	of := k.locked.sorted()
	if ofTool {
		t := k.locked.all[id]
		if t == nil {
			server, name, _ := strings.Cut(id, ":")
			if _, locked := k.locked.file.Servers[server]; locked {
				k.atKey(path, "", false, path+": the server has no such tool in the lock", k.meantName(server, name))
			}
			return
		}
		of = []*tool{t}
	}
	text, err := evaluation.ParseObject(k.told.Mappings[key], evaluation.DefaultLimits())
	if err != nil {
		return
	}
	m, err := binding.Compile(text, coaz.AuthZEN)
	if err != nil {
		return
	}
	for _, p := range ofAll(m, of) {
		what := path + p.Pointer + ": " + expression(p) + p.Detail
		try := "mend the mapping"
		if p.Undeclared {
			try = "correct the name; without the argument the mapping fails, or asks the same whatever is called"
		}
		k.atKey(path, p.Pointer, !p.Undeclared, what, try)
	}
}

// ofAll are the problems that a mapping has with each of several tools.
func ofAll(m *coaz.Mapping, of []*tool) (all []coaz.Problem) {
	for n, t := range of {
		problems := m.Problems(t.input)
		if n == 0 {
			all = problems
			continue
		}
		all = slices.DeleteFunc(all, func(p coaz.Problem) bool { return !slices.Contains(problems, p) })
	}
	return all
}
