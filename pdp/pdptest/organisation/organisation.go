// Package organisation makes no promise: it is for the tests of this module
// alone. It makes up an organisation of a given size: the bundle of its
// policies and entities, and what its PEPs ask. Benchmarks of the library and
// the load test of the service both measure on it, so that their numbers
// compare. Call [New], then [Organisation.Files] and [Organisation.Bodies].
//
// What grows with the number of its policies, and what does not, decides what the
// benchmarks say, so it is written down here:
//
//	actions            20         a vocabulary does not grow with its speakers
//	principal types    3          user, agent, service
//	resource types     5 + n/500  a new product now and then: 5, 7, 25
//	roles              5 + n/20   a policy in twenty comes with a new role: 5, 55, 505
//	folders            5 + n/10   5, 105, 1,005, in trees three deep
//	entities           as asked   half of them principals with one to three roles, half resources in one folder
//
// Policies are, of twenty: 1 forbid `is … is` with a condition; 7 `== == ==`; 6
// principal in a role, two actions, resource in a folder; 3 principal in a role, one
// action, resource is a type; 3 `is … is`, one action, with conditions on attributes
// of both.
package organisation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/fstest"
)

// Organisation is made by [New], and the same whenever its sizes are.
type Organisation struct {
	random                *rand.Rand
	entities              int
	types, roles, folders int
	roleOf                [][]int // of each principal
	policies              []policy
}

// policy is one policy, and what a request is to be for its scope to hold: a
// number, or unasked where the test is absent.
type policy struct {
	text                        string
	action                      int
	principal, role             int
	principalType, resourceType string
	resource, folder            int
}

const (
	actions = 20
	unasked = -1
)

var principalTypes = [...]string{"user", "agent", "service"}

// New makes an organisation with so many policies and entities.
func New(policies, entities int) *Organisation {
	o := &Organisation{
		random: rand.New(rand.NewPCG(uint64(policies), uint64(entities))), entities: entities,
		types: 5 + policies/500, roles: 5 + policies/20, folders: 5 + policies/10,
	}
	o.roleOf = make([][]int, entities/2)
	for i := range o.roleOf {
		for range 1 + o.random.IntN(3) {
			o.roleOf[i] = append(o.roleOf[i], o.random.IntN(o.roles))
		}
	}
	for n := range policies {
		o.policies = append(o.policies, o.policy(n))
	}
	return o
}

// Principals and resources are numbered; type and folder follow from the number.
func principal(i int) (typ, id string) {
	return principalTypes[i%len(principalTypes)], fmt.Sprintf("principal-%d", i)
}

func (o *Organisation) resource(i int) (typ, id string) {
	return fmt.Sprintf("type%d", i%o.types), fmt.Sprintf("resource-%d", i)
}

func (o *Organisation) folderOf(resource int) int { return (resource / o.types) % o.folders }

func (o *Organisation) policy(n int) policy {
	p := policy{action: o.random.IntN(actions), principal: unasked, role: unasked, resource: unasked, folder: unasked}
	role := o.random.IntN(o.roles)
	someone, something := o.number(), o.number()
	principalType, principalID := principal(someone)
	resourceType, resourceID := o.resource(something)
	action := fmt.Sprintf(`Action::"action-%d"`, p.action)
	switch k := n % 20; {
	case k == 0:
		p.principalType, p.resourceType = principalType, resourceType
		p.text = fmt.Sprintf("forbid (principal is %s, action == %s, resource is %s)\nwhen { resource.classification == \"secret\" && !context.mfa };", principalType, action, resourceType)
	case k <= 7:
		p.principal, p.resource = someone, something
		p.text = fmt.Sprintf("permit (principal == %s::%q, action == %s, resource == %s::%q);", principalType, principalID, action, resourceType, resourceID)
	case k <= 13:
		other := fmt.Sprintf(`Action::"action-%d"`, o.random.IntN(actions))
		p.role, p.folder = role, o.random.IntN(o.folders)
		p.text = fmt.Sprintf("permit (principal in Role::\"role-%d\", action in [%s, %s], resource in Folder::\"folder-%d\");", role, action, other, p.folder)
	case k <= 16:
		p.role, p.resourceType = role, resourceType
		p.text = fmt.Sprintf("permit (principal in Role::\"role-%d\", action == %s, resource is %s);", role, action, resourceType)
	default:
		p.principalType, p.resourceType = principalType, resourceType
		p.text = fmt.Sprintf("permit (principal is %s, action == %s, resource is %s)\nwhen { principal.department == resource.department && principal.level >= %d && context.purpose != \"\" };", principalType, action, resourceType, o.random.IntN(5))
	}
	return p
}

// Files are the bundle of the organisation: files of 500 policies, and one of entities.
func (o *Organisation) Files() fstest.MapFS {
	files := fstest.MapFS{"bundle.yaml": {Data: []byte("allow_trivial: true\n")}} // ten policies may hold no permit of some kind
	for from := 0; from < len(o.policies); from += 500 {
		var text strings.Builder
		for n := from; n < min(from+500, len(o.policies)); n++ {
			fmt.Fprintf(&text, "@id(\"policy-%05d\")\n%s\n", n, o.policies[n].text)
		}
		files[fmt.Sprintf("p%05d.cedar", from)] = &fstest.MapFile{Data: []byte(text.String())}
	}
	files["entities/all.json"] = &fstest.MapFile{Data: []byte(o.entityFile())}
	return files
}

func (o *Organisation) entityFile() string {
	text := strings.Builder{}
	put := func(typ, id, attrs string, parents ...string) {
		comma := map[bool]string{true: "[", false: ",\n"}[text.Len() == 0]
		fmt.Fprintf(&text, `%s{"uid":{"type":%q,"id":%q},"attrs":{%s},"parents":[%s]}`, comma, typ, id, attrs, strings.Join(parents, ","))
	}
	parent := func(typ, prefix string, n int) string { return fmt.Sprintf(`{"type":%q,"id":"%s-%d"}`, typ, prefix, n) }
	for i := range o.folders {
		var up []string
		if i >= 5 { // folder-7 is in folder-1
			up = append(up, parent("Folder", "folder", i/5))
		}
		put("Folder", fmt.Sprintf("folder-%d", i), "", up...)
	}
	for i := range o.entities / 2 {
		typ, id := principal(i)
		var roles []string
		for _, r := range o.roleOf[i] {
			roles = append(roles, parent("Role", "role", r))
		}
		put(typ, id, fmt.Sprintf(`"department":"dept-%d","level":%d`, i%10, i%7), roles...)
		typ, id = o.resource(i)
		classification := map[bool]string{true: "secret", false: "internal"}[i%10 == 0]
		put(typ, id, fmt.Sprintf(`"department":"dept-%d","classification":%q`, i%10, classification), parent("Folder", "folder", o.folderOf(i)))
	}
	return text.String() + "]\n"
}

// body is one request as a PEP sends it: attributes are the store's, and the request says how it came about.
func (o *Organisation) body(who, action, what int) string {
	pt, pid := principal(who)
	rt, rid := o.resource(what)
	return fmt.Sprintf(`{"subject":{"type":%q,"id":%q,"properties":{"session":"s-%d"}},"action":{"name":"action-%d"},"resource":{"type":%q,"id":%q},`+
		`"context":{"ip":"192.0.2.7","mfa":%v,"purpose":"Resolve user issue #%d","arguments":{"limit":%d,"dry_run":true}}}`,
		pt, pid, who, action, rt, rid, who%2 == 0, what, what%100)
}

// Bodies are n requests of which some hit a permit of each kind, and some none. The
// next call makes others.
func (o *Organisation) Bodies(n int) []string {
	all := make([]string, 0, n)
	for len(all) < n {
		who, action, what := o.number(), o.random.IntN(actions), o.number()
		if len(all)%2 == 0 { // meant for a policy
			p := o.policies[o.random.IntN(len(o.policies))]
			action = p.action
			who = o.aim(who, p.principal, func(who int) bool { return o.isPrincipal(p, who) })
			what = o.aim(what, p.resource, func(what int) bool { return o.isResource(p, what) })
		}
		all = append(all, o.body(who, action, what))
	}
	return all
}

// number picks a principal or a resource: there are as many of both.
func (o *Organisation) number() int { return o.random.IntN(o.entities / 2) }

// aim finds a number for which a test of a scope holds, if some tries do.
func (o *Organisation) aim(n, exactly int, holds func(int) bool) int {
	if exactly != unasked {
		return exactly
	}
	for range 2000 {
		if holds(n) {
			break
		}
		n = o.number()
	}
	return n
}

func (o *Organisation) isPrincipal(p policy, who int) bool {
	if p.principalType != "" {
		typ, _ := principal(who)
		return typ == p.principalType
	}
	return slices.Contains(o.roleOf[who], p.role)
}

func (o *Organisation) isResource(p policy, what int) bool {
	if p.resourceType != "" {
		typ, _ := o.resource(what)
		return typ == p.resourceType
	}
	return o.folderOf(what) == p.folder
}
