package tools_test

import (
	"slices"
	"strings"
	"testing"
)

// What a server wants of an approval and no policy gives is told, and only where that is sure.
func TestHintThatChangesNothing(t *testing.T) {
	t.Parallel()
	const (
		mode    = `tools.lock.json:65:15: warning: the server wants that who decides can name somebody else (mode: delegated), and no obligation about jira:own lets them; set delegable: true in the obligation, if you want it too`
		timeout = `tools.lock.json:66:15: warning: the timeout changes nothing: no approval of jira:own waits longer than 900 seconds; set timeout in the obligation, if people are to have longer`
		hour    = `tools.lock.json:66:15: warning: the timeout changes nothing: no approval of jira:own waits longer than 3600 seconds; set timeout in the obligation, if people are to have longer`
	)
	two := demands("template: t, timeout: 15m")
	two["q.cedar"] = `@id("b") @obligation("other") permit (principal, action, resource is tool);`
	two["obligations.yaml"] += "other: {type: approval_required, properties: {template: u, timeout: 20m, delegable: true}}\n"
	elsewhere := demands("template: t, timeout: 15m")
	elsewhere["p.cedar"] = `@id("a") @obligation("ask") permit (principal, action, resource == tool::"jira:browse");`
	for name, test := range map[string]struct {
		authorization string
		policies      map[string]string
		want          []string
	}{
		"nobody delegates":              {`{"mode":"delegated","required":true}`, demands("template: t"), []string{mode}},
		"somebody may":                  {`{"mode":"delegated","required":true}`, demands("template: t, delegable: true"), nil},
		"another mode":                  {`{"mode":"user_approval","required":true}`, demands("template: t"), nil},
		"longer":                        {`{"required":true,"timeout":901}`, demands("template: t, timeout: 15m"), []string{timeout}},
		"as long":                       {`{"required":true,"timeout":900}`, demands("template: t, timeout: 15m"), nil},
		"longer than usual":             {`{"required":true,"timeout":3601}`, demands("template: t"), []string{hour}},
		"one of two":                    {`{"mode":"delegated","required":true,"timeout":1000}`, two, nil},
		"nobody knows how it goes on":   {`{"mode":"delegated","required":true,"timeout":99999}`, demands("message: m"), nil},
		"about another tool":            {`{"mode":"delegated","required":false,"timeout":99999}`, elsewhere, nil},
		"the server wants none of that": {`{"required":false}`, demands("template: t"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := setup{config: sound, servers: hints(test.authorization), policies: test.policies}
			lines, _ := checked(t, u.write(t))
			warnings := slices.DeleteFunc(lines, func(s string) bool { return !strings.HasPrefix(s, "tools.lock.json:") })
			if !slices.Equal(warnings, test.want) {
				t.Errorf("%q, want %q", lines, test.want)
			}
		})
	}
}
