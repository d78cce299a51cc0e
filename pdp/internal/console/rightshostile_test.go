package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/visible/hostile"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// rightsHarmless is what stands in each field of the approval request that the others are compared with.
const rightsHarmless = "harmless"

// rightsText is an approval request with one text in every field that people are shown.
type rightsText struct{ text, id string }

// rightsCedar, rightsYAML and rightsJSON are a text as a literal of each, whatever is in it.
func rightsCedar(text string) string { return rightsEscaped(text, `\u{%x}`) }
func rightsYAML(text string) string  { return rightsEscaped(text, `\U%08x`) }
func rightsJSON(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

func rightsEscaped(text, as string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, as, r)
	}
	return `"` + b.String() + `"`
}

// rightsBrief is the beginning of a text, for what is no place for a long one.
func rightsBrief(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// rightsHostileFiles is a bundle in which each text is the id of a policy and the template and the message of the
// obligation that it has.
func rightsHostileFiles(texts []string) map[string]string {
	var policies, obligations strings.Builder
	policies.WriteString(`@id("people") permit(principal is user, action == Action::"approval.decide", resource is Approval);`)
	files := map[string]string{"bundle.yaml": "volatile: [note]\n"}
	for n, text := range texts {
		files[fmt.Sprintf("%d.cedar", n)] = fmt.Sprintf("@id(%s) @obligation(\"ask-%d\") permit(principal, action, resource) when { context has n && context.n == %d };",
			rightsCedar(fmt.Sprint(n, rightsBrief(text, 300))), n, n)
		fmt.Fprintf(&obligations, "ask-%d: {type: approval_required, properties: {template: %s, message: %s, quorum: 3, timeout: 12h, delegable: true}}\n",
			n, rightsYAML(strings.ReplaceAll(rightsBrief(text, 300), "${", "$ {")+"."), rightsYAML(strings.ReplaceAll(rightsBrief(text, 300), "${", "$ {")+" ${principal.id} ${resource.id} ${action.name} ${context.note}"))
	}
	files["a.cedar"], files["obligations.yaml"] = policies.String(), obligations.String()
	return files
}

// rightsTogether has a few short texts stand together, to have fewer pages: a text that does not get out of its place
// leaves the others what they are. A key's name has room for them.
func rightsTogether(texts []string) (together []string) {
	const few, room = 3, 120
	n := 0
	for _, text := range texts {
		last := len(together) - 1
		if n > 0 && n < few && len(together[last])+len(text) < room {
			together[last] += " " + text
			n++
			continue
		}
		together, n = append(together, text), 1
	}
	return together
}

// someOf is every tenth of many texts in the gate, and all of them at night: neighbours are of one kind.
func someOf[T any](texts []T) (some []T) {
	for n := 0; n < len(texts); n += len(texts) / night.Cases(len(texts)) {
		some = append(some, texts[n])
	}
	return some
}

type rightsHostileWorld struct {
	*rightsWorld
	texts []rightsText
}

// openRightsHostile is a server where an approval request waits for each text, with it in every field. The second is
// the harmless one.
func openRightsHostile(t testing.TB, options ...pdptest.Option) *rightsHostileWorld {
	t.Helper()
	texts := append([]string{rightsHarmless + "-too", rightsHarmless}, rightsTogether(hostile.UTF8())...)
	w := newRightsWorld(t)
	// Who asks with one text says something about the request with the next one.
	grant := func(who, key, principal string, permissions ...auth.Permission) error {
		secret, err := w.keys.Add(keys.Spec{Name: key, Principal: auth.Principal{Type: "user", ID: principal}, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}})
		w.secret[who] = secret
		return err
	}
	rightsMust(t, grant("approver", "approver", "mia", auth.Approve))
	rightsMust(t, grant("ida", "ida", "ida", auth.Approve))
	for n, text := range texts {
		who := strconv.Itoa(n)
		principal := rightsBrief(text, 50) + "!"
		if grant(who, rightsBrief(text, 120), principal, auth.Decide, auth.Approve) != nil { // a key has no such name
			rightsMust(t, grant(who, "key "+who, principal, auth.Decide, auth.Approve))
		}
	}
	w.open(pdptest.Bundle(rightsHostileFiles(texts)), options...)
	var numbers []int
	for n := range texts {
		numbers = append(numbers, n)
	}
	numbers = append(numbers[:2:2], someOf(numbers[2:])...)
	h := &rightsHostileWorld{w, make([]rightsText, len(numbers))}
	var all sync.WaitGroup
	for begin := range 16 { // what is filed at once is written at once
		all.Go(func() {
			for i := begin; i < len(numbers); i += 16 {
				n := numbers[i]
				h.texts[i] = rightsText{texts[n], h.files(n, texts[n])}
			}
		})
	}
	all.Wait()
	return h
}

// rightsSecret matches names whose values are masked.
var rightsSecret = regexp.MustCompile(`(?i)secret|token|passw|cookie|credential|auth|session|key`)

// files has a text be in every field of an approval request, and of what people say about it.
func (w *rightsHostileWorld) files(n int, text string) (id string) {
	w.t.Helper()
	// Where it is long it stands whole in the arguments alone: a record has no room for more.
	who, whole, text := strconv.Itoa(n), rightsJSON(text), rightsBrief(text, 400)
	t := rightsJSON(text)
	named := func(suffix string) string { return rightsJSON(text + suffix) }
	at := func(prefix string) string { // the page has them in the order of their names
		if rightsSecret.MatchString(text) { // its value would be masked, and be nowhere
			return rightsJSON(prefix)
		}
		return rightsJSON(prefix + text)
	}
	members := fmt.Sprintf(`%s:%s,%s:[%s,{%s:%s}]`, at("1"), t, at("2"), t, at("4"), t)
	id = w.asks(who, fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":%s,"actor_type":"agent","roles":[%s],%s:%s},
		"action":%s,"resource":{"type":"tool","id":%s,"labels":{%s}},
		"context":{"n":%d,"arguments":{%s,"3":%s},"note":%s,%s:%s,"justification":%s,"agent":{"type":"agent","id":%s},"on_behalf_of":[{"type":"user","id":%s}]}}`,
		named("-a"), t, at("z"), t, named("-b"), named("-c"), members, n, members, whole, t, at("z"), t, t, named("-d"), named("-e")))
	say := func(key, decision, to string) {
		body := fmt.Sprintf(`{"decision":%q,"reason":%s`, decision, named(" r"))
		if to != "" {
			body += `,"to":` + rightsJSON(auth.Principal{Type: "user", ID: to}.String())
		}
		if got := w.api(key, http.MethodPost, "/v1/approvals/"+id+"/decision", body+"}"); got.Status != http.StatusOK {
			w.t.Fatalf("%q: %s: got %d %s", text, decision, got.Status, got.Body)
		}
	}
	if n == 0 {
		return id
	}
	say("ida", "delegate", rightsBrief(text, 50)+"?")
	say(strconv.Itoa(n-1), "approve", "")
	return id
}
