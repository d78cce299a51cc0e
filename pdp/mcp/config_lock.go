package mcp

import (
	"errors"
	"fmt"
	"strings"

	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/server/config"
)

// LockConfig has the definitions of tools that were accepted, with which tools are compared.
type LockConfig struct {
	File string   `yaml:"file" path:"yes" doc:"The file with the definitions of tools that were accepted. policy-service mcp lock --accept writes it. A changed file takes effect without a restart. Nothing is locked unless given."`
	Mode LockMode `yaml:"mode" enum:"enforce,warn,off" doc:"What becomes of what is not as it is locked; enforce unless given. enforce: a tool that is new or changed is neither listed nor callable, as if it did not exist, and clients are told the instructions that are locked. warn: policies see pinned: false with such a tool. off: nothing is compared."`
}

// LockMode is the treatment of tools that differ from the lock.
type LockMode string

// The treatments.
const (
	LockEnforce LockMode = "enforce"
	LockWarn    LockMode = "warn"
	LockOff     LockMode = "off"
)

func (l LockConfig) check(m *config.Reading) {
	if l.File == "" && l.Mode != "" && l.Mode != LockOff {
		m.Addf("lock.mode", "lock has a mode and no file, so that nothing would be locked; write lock.file, and make the file with: policy-service mcp lock --accept")
	}
}

// newLock reads the lock. Nothing is locked if there is no file.
func newLock(c Config, d Deps) (link.Lock, error) {
	if c.Lock.File == "" || c.Lock.Mode == LockOff {
		return link.Lock{}, nil
	}
	enforce := c.Lock.Mode != LockWarn
	o := lock.FollowOptions{MayBeMissing: !enforce, Now: d.Now, Logger: d.Logger}
	o.Check = func(f lock.File) error {
		if enforce {
			return errors.Join(c.allLocked(f), c.noneAlike(f))
		}
		return c.noneAlike(f)
	}
	file, err := lock.Follow(c.Lock.File, o)
	if err != nil {
		return link.Lock{}, fmt.Errorf("lock.file: %w", err)
	}
	return link.Lock{File: file, Enforce: enforce, Arguments: c.members()}, nil
}

// members says which members the arguments of locked tools may have.
func (c Config) members() arguments.Members {
	if c.Arguments == ArgumentsClosed {
		return arguments.Closed
	}
	return arguments.Open
}

// allLocked is an error if none of the tools of a server would be there.
func (c Config) allLocked(f lock.File) (err error) {
	for _, name := range sortedNames(c.Upstreams) {
		if _, ok := f.Servers[name]; !ok {
			err = errors.Join(err, fmt.Errorf("%s: nothing of the server %s is locked, and so it would have no tools; look at them with: policy-service mcp lock --diff, and add them with: policy-service mcp lock --accept --server %s", c.Lock.File, name, name))
		}
	}
	return err
}

// noneAlike is an error if people could take one locked tool for another of its server by the name that clients see:
// neither would be there.
func (c Config) noneAlike(f lock.File) (err error) {
	for _, name := range sortedNames(c.Upstreams) {
		before := map[string]string{}
		for _, tool := range sortedNames(f.Servers[name].Tools) {
			if c.Upstreams[name].Tools[tool].Hidden {
				continue
			}
			alike := strings.ToLower(c.ToolName(name, tool))
			if other, twice := before[alike]; twice {
				err = errors.Join(err, fmt.Errorf("%s: the server %s has tools by the names %q and %q, which clients and people take for one; hide one of them: upstreams: {%s: {tools: {%q: {hidden: true}}}}", c.Lock.File, name, other, tool, name, tool))
			}
			before[alike] = tool
		}
	}
	return err
}
