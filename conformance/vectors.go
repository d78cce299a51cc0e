package conformance

import (
	"encoding/json"
	"fmt"
	"slices"

	"policy-service/conformance/internal/casefile"
)

// The published data of two interop scenarios, as cases.

// todoCases are the requests of the Todo scenario. Answers are exact: clients of
// that scenario compare them as a whole.
func todoCases() ([]Case, error) {
	text, err := files.ReadFile("cases/vectors/todo-decisions.json")
	if err != nil {
		return nil, err
	}
	var data struct {
		Evaluation []struct {
			Request  json.RawMessage
			Expected bool
		}
		Evaluations []struct {
			Request  json.RawMessage
			Expected []any
		}
	}
	if err := json.Unmarshal(text, &data); err != nil {
		return nil, err
	}
	var all []Case
	add := func(id, ask string, request json.RawMessage, exact any) {
		all = append(all, Case{ID: id, Plan: "todo", Title: "a published request and its answer", Steps: []Step{
			{Ask: ask, Body: textOf(string(request)), Want: Want{Exact: exact}},
		}})
	}
	for n, v := range data.Evaluation {
		add(fmt.Sprintf("todo-%d", n), "evaluation", v.Request, map[string]any{"decision": v.Expected})
	}
	for n, v := range data.Evaluations {
		add(fmt.Sprintf("todo-batch-%d", n), "evaluations", v.Request, map[string]any{"evaluations": v.Expected})
	}
	return all, nil
}

// table says who may do what on which resources, and nothing else may.
type table struct {
	Plan, Subject, Resource string
	Subjects, Actions       []string
	Resources               []string
	// Allowed holds resources by subject and action.
	Allowed map[string]map[string][]string
}

// tableCases ask a table in every direction: every single decision, and each of
// the three searches.
func tableCases() ([]Case, error) {
	var t table
	if err := read("search-interop.yaml", &t); err != nil {
		return nil, err
	}
	return slices.Concat(t.decisions(), t.resourceSearches(), t.subjectSearches(), t.actionSearches()), nil
}

func (t table) allows(subject, action, resource string) bool {
	return slices.Contains(t.Allowed[subject][action], resource)
}

func (t table) decisions() (all []Case) {
	for _, s := range t.Subjects {
		for _, a := range t.Actions {
			for _, r := range t.Resources {
				all = append(all, t.one("decision-"+s+"-"+a+"-"+r, "evaluation", entity(t.Subject, s), action(a), entity(t.Resource, r),
					Want{Has: map[string]any{"decision": t.allows(s, a, r)}}))
			}
		}
	}
	return all
}

func (t table) resourceSearches() (all []Case) {
	for _, s := range t.Subjects {
		for _, a := range t.Actions {
			want := wantResults("id", t.Resource, t.Allowed[s][a], func(string) bool { return true })
			all = append(all, t.one("resources-"+s+"-"+a, "search-resource", entity(t.Subject, s), action(a), kind(t.Resource), want))
		}
	}
	return all
}

func (t table) subjectSearches() (all []Case) {
	for _, r := range t.Resources {
		for _, a := range t.Actions {
			want := wantResults("id", t.Subject, t.Subjects, func(s string) bool { return t.allows(s, a, r) })
			all = append(all, t.one("subjects-"+a+"-"+r, "search-subject", kind(t.Subject), action(a), entity(t.Resource, r), want))
		}
	}
	return all
}

func (t table) actionSearches() (all []Case) {
	for _, s := range t.Subjects {
		for _, r := range t.Resources {
			want := wantResults("name", "", t.Actions, func(a string) bool { return t.allows(s, a, r) })
			all = append(all, t.one("actions-"+s+"-"+r, "search-action", entity(t.Subject, s), "", entity(t.Resource, r), want))
		}
	}
	return all
}

// wantResults are the results that a search must have: those of all names that are found, each in the member that names
// it.
func wantResults(member, typ string, names []string, found func(string) bool) Want {
	want := Want{Results: []any{}}
	for _, name := range names {
		if result := map[string]any{member: name}; found(name) {
			if typ != "" {
				result["type"] = typ
			}
			want.Results = append(want.Results, result)
		}
	}
	return want
}

func (t table) one(id, ask, subject, action, resource string, want Want) Case {
	text := fmt.Sprintf(`{"subject":%s,"action":%s,"resource":%s}`, subject, action, resource)
	if action == "" {
		text = fmt.Sprintf(`{"subject":%s,"resource":%s}`, subject, resource)
	}
	return Case{ID: t.Plan + "-" + id, Plan: t.Plan, Title: "as the rules of the scenario have it", Steps: []Step{
		{Ask: ask, Body: textOf(text), Want: want},
	}}
}

func textOf(s string) *casefile.Text { return (*casefile.Text)(&s) }

func entity(typ, id string) string {
	return fmt.Sprintf(`{"type":%s,"id":%s}`, casefile.Quote(typ), casefile.Quote(id))
}
func kind(typ string) string    { return fmt.Sprintf(`{"type":%s}`, casefile.Quote(typ)) }
func action(name string) string { return fmt.Sprintf(`{"name":%s}`, casefile.Quote(name)) }
