package inbox

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Apart is how a request differs from the others of a list that are for the same: of one tenant, by one subject, of one
// action on one resource.
type Apart struct {
	// Members are the members in which it differs from another one: arguments by their names, and others by where they
	// stand, such as context.purpose.
	Members []Member
	// As is the place in the list, from 0, of the first one before it that has the same members; -1 if none has.
	As int
}

// Member is a member of a request. Its value is empty if others have such a member, and this one has none.
type Member struct {
	// Of is the part of the question that has it: arguments, context, subject, action or resource.
	Of, Name string
	Value    jsontext.Value
	// Alike is the part of its text that the values of all others begin with, too.
	Alike string
}

// Text is the value: that of a string, and the JSON of anything else.
func (m Member) Text() string {
	var text string
	if json.Unmarshal(m.Value, &text) != nil {
		text = string(m.Value)
	}
	return text
}

// Acts reports if the member is one of those that a list of actors has ([Asked.Actors]).
func (m Member) Acts() bool {
	return m.Of == "context" && evaluation.NamesActors(m.Name) && m.Name != evaluation.RequesterMember
}

// String is the name of the member. That of an argument is its own, unless it would pass for a member of another part.
func (m Member) String() string {
	switch {
	case m.Name == "":
		return m.Of
	case m.Of == ofArguments && !partName.MatchString(m.Name):
		return m.Name
	}
	return m.Of + "." + m.Name
}

const ofArguments = "arguments"

// partName begins the names of members of all parts.
var partName = regexp.MustCompile(`^(arguments|context|subject|action|resource)\.`)

// TellApart tells apart the requests of a list.
func TellApart(all []Request) []Apart {
	type call struct {
		tenant, action                       string
		byType, byID, resourceType, resource string
	}
	apart, members, alike := make([]Apart, len(all)), make([]map[place]string, len(all)), map[call][]int{}
	for n := range all {
		apart[n].As = -1
		if r := &all[n]; !r.Redacted() { // nothing is left of it to compare
			q := &r.Request
			of := call{r.Tenant, q.Action.Name, q.Subject.Type, q.Subject.ID, q.Resource.Type, q.Resource.ID}
			members[n], alike[of] = q.members(), append(alike[of], n)
		}
	}
	for _, rows := range alike {
		first, differ := members[rows[0]], map[place]bool{}
		for _, n := range rows[1:] {
			for _, of := range []map[place]string{members[n], first} {
				for at := range of {
					differ[at] = differ[at] || members[n][at] != first[at]
				}
			}
		}
		maps.DeleteFunc(differ, func(_ place, is bool) bool { return !is })
		places := slices.SortedFunc(maps.Keys(differ), place.compare)
		for _, at := range places {
			alike, some := "", false
			for _, n := range rows {
				m := Member{Of: at.of, Name: at.name, Value: jsontext.Value(members[n][at])}
				apart[n].Members = append(apart[n].Members, m)
				switch text := m.Text(); {
				case len(m.Value) == 0:
				case some:
					alike = common(alike, text)
				default:
					alike, some = text, true
				}
			}
			for _, n := range rows {
				last := &apart[n].Members[len(apart[n].Members)-1]
				last.Alike = common(alike, last.Text())
			}
		}
		for k, n := range rows {
			as := slices.IndexFunc(rows[:k], func(other int) bool { return maps.Equal(members[n], members[other]) })
			if as >= 0 {
				apart[n].As = rows[as]
			}
		}
	}
	return apart
}

// common is the beginning of both texts.
func common(one, other string) string {
	for n, r := range one {
		if !strings.HasPrefix(other[min(n, len(other)):], string(r)) {
			return one[:n]
		}
	}
	return one
}

// place is where a member stands.
type place struct{ of, name string }

// compare has arguments come first.
func (p place) compare(other place) int {
	rank := func(of string) string { return strings.TrimPrefix(of, ofArguments) }
	return cmp.Or(cmp.Compare(rank(p.of), rank(other.of)), cmp.Compare(p.name, other.name))
}

// Arguments are the arguments of the question, by their names.
func (a Asked) Arguments() (all []Member) {
	members := a.members()
	for _, at := range slices.SortedFunc(maps.Keys(members), place.compare) {
		if at.of == ofArguments {
			all = append(all, Member{Of: at.of, Name: at.name, Value: jsontext.Value(members[at])})
		}
	}
	return all
}

// mostMembers is how many members of a part are told apart. A part with more is told apart as a whole: a list has many
// requests, and each is compared with the others.
const mostMembers = 64

// members are the arguments of a question, and all else that it says of its parts.
func (a Asked) members() map[place]string {
	context := maps.Clone(a.Context)
	delete(context, ofArguments)
	all := map[place]string{}
	add := func(of string, value jsontext.Value) {
		var parts map[string]jsontext.Value
		if (json.Unmarshal(value, &parts) != nil || len(parts) > mostMembers) && len(value) > 0 {
			parts = map[string]jsontext.Value{"": value}
		}
		for name, part := range parts {
			all[place{of, name}] = string(part)
		}
	}
	add("action", a.Action.Properties)
	add(ofArguments, a.Context[ofArguments])
	if len(context) > mostMembers {
		rest, _ := json.Marshal(context, json.Deterministic(true)) // its values were read, and so can be written
		context = map[string]jsontext.Value{"": rest}
	}
	for name, part := range context {
		all[place{"context", name}] = string(part)
	}
	add("resource", a.Resource.Properties)
	add("subject", a.Subject.Properties)
	return all
}
