package conformance

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The reference stub: a PDP of a few tables that answers the whole suite. It shares
// nothing with our server, so that it shows two things: that the suite can be passed
// by somebody who reads the documents, and, wrapped by faults_test.go, that it
// cannot be passed by somebody who does not. This file is what the stub decides.

// stubEntity is an entity as a request gives it.
type stubEntity struct {
	typ, id string
	sent    map[string]any
}

// stored are attributes by type and id, from the published data and the tables of
// the fixture.
var stored = sync.OnceValue(func() map[string]map[string]map[string]string {
	all := map[string]map[string]map[string]string{"user": {}, "record": {
		"record-1": {"status": "active"}, "record-2": {"status": "archived"},
	}}
	for _, u := range publishedUsers(nil) {
		all["user"][u.ID] = map[string]string{"role": u.Role, "department": u.Department}
	}
	all["user"]["bob"]["role"] = "admin"
	for _, r := range publishedRecords(nil) {
		all["record"][r.name()] = map[string]string{"owner": r.Owner, "department": r.Department}
	}
	return all
})

type publishedUser struct{ ID, Role, Department string }

type publishedRecord struct {
	ID                int
	Department, Owner string
}

func (r publishedRecord) name() string { return strconv.Itoa(r.ID) }

func publishedUsers(t *testing.T) (users []publishedUser) {
	readPublished(t, "search-users.json", &users)
	return users
}

func publishedRecords(t *testing.T) (records []publishedRecord) {
	readPublished(t, "search-records.json", &records)
	return records
}

// readPublished reads a file of the published data; without a test it panics.
func readPublished(t *testing.T, name string, into any) {
	text, err := os.ReadFile("cases/vectors/" + name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil && t != nil {
		t.Fatal(err)
	} else if err != nil {
		panic(err)
	}
}

// attr is an attribute that is a text: what was sent, else what is stored. A value
// of any other kind is none that a rule can read, and nothing takes its place.
func (e stubEntity) attr(name string) string {
	if v, ok := e.sent[name]; ok && v != nil {
		s, _ := v.(string)
		return s
	}
	return stored()[e.typ][e.id][name]
}

const todoID = "CiRmZD%c2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs"

// todoUsers are e-mail and roles of the Todo scenario, by id.
var todoUsers = map[string]struct {
	email string
	roles []string
}{
	strings.Replace(todoID, "%c", "A", 1): {"rick@the-citadel.com", []string{"admin", "evil_genius"}},
	strings.Replace(todoID, "%c", "E", 1): {"morty@the-citadel.com", []string{"editor"}},
	strings.Replace(todoID, "%c", "I", 1): {"summer@the-smiths.com", []string{"editor"}},
	strings.Replace(todoID, "%c", "M", 1): {"beth@the-smiths.com", []string{"viewer"}},
	strings.Replace(todoID, "%c", "Q", 1): {"jerry@the-smiths.com", []string{"viewer"}},
}

var actionNames = []string{
	"DELETE", "GET", "POST", "PUT", "can_create_todo", "can_delete_todo", "can_read_todos", "can_read_user",
	"can_update_todo", "delete", "edit", "read", "view", "write",
}

// typeName is the form of a type's name that Cedar has, which our own promises rest on.
var typeName = regexp.MustCompile(`^[A-Za-z_]\w*(::[A-Za-z_]\w*)*$`)

func knownForm(typ string) bool {
	return typeName.MatchString(typ) && typ != "Action" && !strings.HasSuffix(typ, "::Action") && !strings.HasPrefix(typ, "__cedar")
}

// permits is every rule of the four scenarios.
func permits(s stubEntity, action string, properties map[string]any, r stubEntity) bool {
	return certifies(s, action, properties, r) || searches(s, action, r) || todo(s, action, r) || routes(s, action, r)
}

func certifies(s stubEntity, action string, properties map[string]any, r stubEntity) bool {
	if s.typ != "user" || r.typ != "record" || r.id != "record-1" && r.id != "record-2" {
		return false
	}
	status := r.attr("status")
	switch action {
	case "read":
		return s.id == "alice" || s.id == "bob" && r.id == "record-1"
	case "write":
		return s.id == "alice" && status != "archived" && status != "" || s.attr("role") == "admin" && status == "archived"
	case "delete":
		return s.id == "alice" && r.id == "record-1" && properties["soft"] == true
	}
	return false
}

func searches(s stubEntity, action string, r stubEntity) bool {
	if s.typ != "user" || r.typ != "record" || stored()["record"][r.id]["owner"] == "" {
		return false
	}
	owns := r.attr("owner") == s.id
	near := s.attr("department") != "" && s.attr("department") == r.attr("department")
	manages := s.attr("role") == "manager"
	return owns && slices.Contains([]string{"view", "edit", "delete"}, action) ||
		action == "view" && (near || manages) || action == "edit" && near && manages
}

func todo(s stubEntity, action string, r stubEntity) bool {
	user, known := todoUsers[s.id]
	if s.typ != "user" || !known {
		return false
	}
	is := func(role string) bool { return slices.Contains(user.roles, role) }
	owns := is("editor") && r.attr("ownerID") == user.email
	switch action {
	case "can_read_user":
		return r.typ == "user"
	case "can_read_todos":
		return r.typ == "todo"
	case "can_create_todo":
		return r.typ == "todo" && (is("admin") || is("editor"))
	case "can_update_todo":
		return r.typ == "todo" && (is("evil_genius") || owns)
	case "can_delete_todo":
		return r.typ == "todo" && (is("admin") || owns)
	}
	return false
}

func routes(s stubEntity, action string, r stubEntity) bool {
	user, known := todoUsers[s.id]
	if s.typ != "identity" || r.typ != "route" || !known {
		return false
	}
	need, there := map[string][]string{
		"GET /users/{userId}": {"admin", "editor", "viewer"}, "GET /todos": {"admin", "editor", "viewer"},
		"POST /todos": {"admin", "editor"}, "PUT /todos/{todoId}": {"evil_genius", "editor"}, "DELETE /todos/{todoId}": {"admin", "editor"},
	}[action+" "+r.id]
	return there && slices.ContainsFunc(need, func(role string) bool { return slices.Contains(user.roles, role) })
}
