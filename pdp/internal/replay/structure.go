package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"policy-service/pdp"
	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// Side is a bundle, and its files by path.
type Side struct {
	Bundle *pdp.Bundle
	Files  map[string][]byte

	then *recorder.Then
	// policies are its policies as they were written. They are cut out once.
	policies func() map[policyKey]policyText
}

// SideOf is a bundle of files.
func SideOf(b *pdp.Bundle, files map[string][]byte) *Side {
	s := &Side{Bundle: b, Files: files, then: recorder.ThenOf(b, files)}
	s.policies = sync.OnceValue(s.cut)
	return s
}

// ReadSide loads a bundle.
func ReadSide(source pdp.Source) (*Side, error) {
	var side *Side
	_, err := pdp.New(source, pdp.Options{BeforeSwap: func(b pdp.Incoming) error {
		if len(b.Later) > 0 {
			return fmt.Errorf("the files of these tenants do not load, or change while they are read: %s", strings.Join(b.Later, ", "))
		}
		side = SideOf(b.Bundle, b.Files)
		return nil
	}})
	if err == nil {
		if missing := side.Bundle.Unavailable(); len(missing) > 0 {
			err = fmt.Errorf("the files of these tenants do not load: %s; policy-service check says why", strings.Join(missing, ", "))
		}
	}
	return side, err
}

// With are the policies, declarations and obligations of one bundle, and its bundle.yaml, with the entities, the schema and all else of another.
func (s *Side) With(other *Side) (*Side, error) {
	files := map[string][]byte{}
	for of, mine := range map[*Side]bool{s: true, other: false} {
		for name, content := range of.Files {
			base := path.Base(name)
			policies := isPolicies(name) || strings.Contains("/"+name, "/access/") || base == "obligations.yaml" || base == "bundle.yaml"
			if policies == mine && name != manifest {
				files[name] = content
			}
		}
	}
	b, err := recorder.Compile(files, "")
	if err != nil {
		return nil, fmt.Errorf("the policies do not load with the entities and the schema of the base: %w", err)
	}
	return SideOf(b, files), nil
}

// The changes that a policy can have.
const (
	Added    = "added"
	Removed  = "removed"
	Edited   = "edited"
	Moved    = "moved"    // to another file
	Reworded = "reworded" // its comments or its layout alone
)

// PolicyChange is a policy that is not as it was. Position is that of the candidate, and of one that was removed that of the base.
type PolicyChange struct {
	ID       string `json:"id"`
	Tenant   string `json:"tenant,omitzero"`
	Change   string `json:"change"`
	Position string `json:"position"`
}

// Structure says what differs between two bundles, before anything is asked of them.
type Structure struct {
	Policies []PolicyChange `json:"policies"`
	// Files are the other files that differ, such as bundle.yaml.
	Files []FileChange `json:"files"`
	// Entities counts the entities that were added, removed and changed, and Named are the first of them.
	Entities EntityChanges `json:"entities"`
}

// FileChange is a file that is not as it was.
type FileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

// EntityChanges are the entities that differ.
type EntityChanges struct {
	Added   int      `json:"added"`
	Removed int      `json:"removed"`
	Changed int      `json:"changed"`
	Named   []string `json:"named"`
}

// mostEntities is how many entities are named.
const mostEntities = 20

// Differ compares two bundles.
func Differ(base, candidate *Side) Structure {
	s := Structure{Policies: []PolicyChange{}, Files: []FileChange{}, Entities: EntityChanges{Named: []string{}}}
	was, is := base.policies(), candidate.policies()
	for _, key := range slices.SortedFunc(maps.Keys(was), compareKeys) {
		before := was[key]
		after, there := is[key]
		change := PolicyChange{ID: key.id, Tenant: key.tenant, Position: after.Position}
		switch {
		case !there:
			change.Change, change.Position = Removed, before.Position
		case before.meaning != after.meaning:
			change.Change = Edited
		case fileOf(before.Position) != fileOf(after.Position):
			change.Change = Moved
		case before.text != after.text:
			change.Change = Reworded
		default:
			continue
		}
		s.Policies = append(s.Policies, change)
	}
	for key, after := range is {
		if _, was := was[key]; !was {
			s.Policies = append(s.Policies, PolicyChange{key.id, key.tenant, Added, after.Position})
		}
	}
	slices.SortFunc(s.Policies, func(a, b PolicyChange) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ID, b.ID))
	})
	for _, name := range slices.Sorted(maps.Keys(base.Files)) {
		content, there := candidate.Files[name]
		switch {
		case isPolicies(name):
		case !there:
			s.Files = append(s.Files, FileChange{name, Removed})
		case !bytes.Equal(content, base.Files[name]):
			s.Files = append(s.Files, FileChange{name, Edited})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(candidate.Files)) {
		if _, was := base.Files[name]; !was && !isPolicies(name) {
			s.Files = append(s.Files, FileChange{name, Added})
		}
	}
	s.Entities.compare(base.Files, candidate.Files)
	return s
}

type policyKey struct{ tenant, id string }

func compareKeys(a, b policyKey) int {
	return cmp.Or(strings.Compare(a.tenant, b.tenant), strings.Compare(a.id, b.id))
}

// policyText is a policy as it was written. Its meaning is the text without comments and white space.
type policyText struct {
	pdp.PolicyInfo
	text, meaning string
}

func (s *Side) cut() map[policyKey]policyText {
	all := map[policyKey]policyText{}
	for _, p := range s.Bundle.Policies() {
		text := s.then.Text(p.Position)
		all[policyKey{p.Tenant, p.ID}] = policyText{p, text, meaningOf(text)}
	}
	return all
}

func meaningOf(text string) string {
	var words []string
	for token := range cedartext.Tokens(text) {
		if !token.Trivia() {
			words = append(words, token.Text)
		}
	}
	return strings.Join(words, " ")
}

// fileOf is the file of a position, whose name may hold colons.
func fileOf(position string) string {
	for range 2 {
		if n := strings.LastIndexByte(position, ':'); n >= 0 {
			position = position[:n]
		}
	}
	return position
}

func isPolicies(name string) bool { return path.Ext(name) == ".cedar" }

// compare counts the entities that differ. A file that is no list of entities was refused when the bundle was loaded.
func (c *EntityChanges) compare(was, is map[string][]byte) {
	before, after := entitiesIn(was), entitiesIn(is)
	name := func(id string) {
		if len(c.Named) < mostEntities {
			c.Named = append(c.Named, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		switch text, there := after[id]; {
		case !there:
			c.Removed++
			name(id)
		case text != before[id]:
			c.Changed++
			name(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if _, was := before[id]; !was {
			c.Added++
			name(id)
		}
	}
}

// entitiesIn are the entities of a bundle, as JSON with its members in order, by where they are and their names.
func entitiesIn(files map[string][]byte) map[string]string {
	all := map[string]string{}
	for name, content := range files {
		if !strings.Contains("/"+name, "/entities/") || path.Ext(name) != ".json" {
			continue
		}
		var list []map[string]any
		if json.Unmarshal(content, &list) != nil {
			continue
		}
		tenant, _, _ := strings.Cut(name, "entities/")
		for _, one := range list {
			id, _ := json.Marshal(one["uid"], json.Deterministic(true))
			text, _ := json.Marshal(one, json.Deterministic(true))
			all[tenant+string(id)] = string(text)
		}
	}
	return all
}
