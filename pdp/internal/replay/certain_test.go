package replay_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/replay"
	"policy-service/pdp/pdptest/night"
)

// chance makes policies of clauses, many of which read what is hidden, or see more than the question.
type chance struct{ *rand.Rand }

func (c chance) of(all ...string) string { return all[c.IntN(len(all))] }

func (c chance) policy() string {
	clause := func() string {
		return c.of(`context.arguments.token == "a"`, `context.arguments.token like "b*"`, `context.arguments has token`, `context.n == 1`, `context.n > 5`,
			`context.none == 1`, `context.pdp.approved`, `context.pdp.capability.held`, `resource == doc::"open"`, `true`, `false`,
			`context.arguments.token == "a" && context.none == 1`, `context.n == 1 || context.arguments.token == "zz"`, `context.pdp.capability.held && context.arguments.token != "a"`)
	}
	text := c.of("permit", "permit", "permit", "forbid") + " (principal, action" + c.of("", ` == Action::"read"`, ` == Action::"read"`, ` == Action::"buy"`) + ", resource)"
	for range 1 + c.IntN(2) {
		text += c.of(" when { ", " when { ", " unless { ") + clause() + " }"
	}
	if strings.HasPrefix(text, "permit") {
		text = c.of("", "", "", `@obligation("up") `, `@obligation("tell") `) + text
	} else {
		text = c.of("", "", `@reason_user("no") `) + text
	}
	return text + ";"
}

func (c chance) files() map[string]string {
	text := ""
	for n := range 2 + c.IntN(4) {
		text += fmt.Sprintf("@id(\"p%d\") %s\n", n, c.policy())
	}
	return map[string]string{
		"a.cedar": text, "bundle.yaml": "allow_trivial: true\nforbid_errors: " + c.of("deny", "ignore") + "\n",
		"obligations.yaml": "up: {type: step-up, on: allow, properties: {acr_value: high}}\ntell: {type: notification, on: allow, properties: {to: a, body: b}}\n",
	}
}

// edit changes, adds or takes away one policy or two.
func (c chance) edit(files map[string]string) map[string]string {
	files = maps.Clone(files)
	lines := strings.Split(strings.TrimSpace(files["a.cedar"]), "\n")
	for range 1 + c.IntN(2) {
		switch n := c.IntN(len(lines)); c.IntN(3) {
		case 0:
			lines = append(lines, fmt.Sprintf("@id(\"q%d\") %s", len(lines), c.policy()))
		case 1:
			id, _, _ := strings.Cut(lines[n], " ")
			lines[n] = id + " " + c.policy()
		default:
			lines = append(lines[:n:n], lines[n+1:]...)
		}
		if len(lines) == 0 {
			lines = []string{`@id("left") permit (principal, action == Action::"none", resource);`}
		}
	}
	files["a.cedar"] = strings.Join(lines, "\n") + "\n"
	return files
}

// What is said of an answer holds with the value that the mask hides: of the answer on record, and of that of another base with each
// value, because nothing says which it was.
func TestPropertyClassesAreCertain(t *testing.T) {
	t.Parallel()
	c := chance{rand.New(rand.NewPCG(7, 63))}
	tokens := []string{"a", "bb", "zz", "other"}
	body := func(action, token string, n int) string {
		return fmt.Sprintf(`{"subject":{"type":"user","id":"mia"},"action":{"name":%q},"resource":{"type":"doc","id":"open"},"context":{"n":%d,"arguments":{"token":%q},"supported_obligations":["step-up","notification"]}}`, action, n, token)
	}
	count := map[string]int{}
	for range night.Cases(40) {
		base := c.files()
		fits := func(files map[string]string) bool {
			b, err := recorder.Compile(bytesOf(files), "")
			return err == nil && b != nil
		}
		if !fits(base) {
			continue
		}
		a := open(t)
		a.load(base, true)
		type question struct {
			action, token string
			n             int
		}
		asked := map[string]question{}
		for _, action := range []string{"read", "buy"} {
			for n := range 2 {
				q := question{action, c.of(tokens...), n}
				a.asks("default", body(action, q.token, n))
				asked[fmt.Sprintf("d%04d", a.ids)] = q
			}
		}
		a.sources(func(name string, from func() replay.Source) {
			if name != "the directory" {
				return
			}
			for range 12 {
				first, next := base, c.edit(base)
				onRecord := c.IntN(3) > 0
				if !onRecord {
					first = c.edit(base)
				}
				if !fits(first) || !fits(next) || !onRecord && maps.Equal(first, base) {
					continue
				}
				was, is := sideOf(t, first), sideOf(t, next)
				others := map[string]*replay.Change{}
				_, err := replay.Compare(t.Context(), from(), was, is, replay.Options{}, func(one *replay.Change) { others[one.Recorded.ID] = one })
				must(t, err)
				for id, q := range asked {
					possible := tokens
					if onRecord {
						possible = []string{q.token}
					}
					one, changes := others[id]
					for _, token := range possible {
						before, after := said(t, was.Bundle, body(q.action, token, q.n)), said(t, is.Bundle, body(q.action, token, q.n))
						if !changes && before != after || changes && one.Unknown == nil && before == after {
							t.Fatalf("%v, on record %v, changes %v: %s becomes %s\n%s\n%s", q, onRecord, changes, before, after, first["a.cedar"], next["a.cedar"])
						}
					}
					if !changes {
						count["same"]++
					} else {
						count[string(one.Class)]++
					}
				}
			}
		})
	}
	t.Log(count)
	if !testing.Short() && (count["same"] < 100 || count["unknown"] < 20 || count["widened"]+count["narrowed"] < 20) {
		t.Errorf("too few of a kind: %v", count)
	}
}

func bytesOf(files map[string]string) map[string][]byte {
	all := map[string][]byte{}
	for name, text := range files {
		all[name] = []byte(text)
	}
	return all
}

// said is the answer to a caller of which nothing is hidden.
func said(t *testing.T, b *pdp.Bundle, body string) string {
	t.Helper()
	q, err := evaluation.DecodeAuthZEN([]byte(body), "default", evaluation.DefaultLimits())
	must(t, err)
	d, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), pdp.Call{Request: q, Asker: evaluation.Asker{Name: "key:pep"}})
	must(t, err)
	var owed []string
	for _, o := range d.Obligations {
		owed = append(owed, o.ID)
	}
	slices.Sort(owed)
	return fmt.Sprint(d.Allow, d.Reason, d.ReasonUser, owed, d.Required)
}
