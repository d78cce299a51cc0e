package authzenclient_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation/authzenclient"
)

const metadata = `{"policy_decision_point":"https://pdp","access_evaluation_endpoint":"https://pdp/one","access_evaluations_endpoint":"https://pdp/many","search_subject_endpoint":"https://pdp/who","search_resource_endpoint":"https://pdp/what","search_action_endpoint":"https://pdp/how"}`

// seen remembers where requests went, and answers all but discovery with yes.
func seen(paths *[]string, metadata step) step {
	return func(r *http.Request) (*http.Response, error) {
		*paths = append(*paths, r.Method+" "+r.URL.String())
		if strings.Contains(r.URL.Path, "/.well-known/") {
			if r.Header.Get("Authorization") != "" {
				*paths = append(*paths, "with credentials!")
			}
			return metadata(r)
		}
		return answer(200, `{"decision":true,"allow":true,"evaluations":[{"decision":true}],"results":[]}`)(r)
	}
}

func askAll(t *testing.T, c *authzenclient.Client) (permits int) {
	t.Helper()
	for _, d := range append(c.EvaluateBatch(t.Context(), "", question), c.Evaluate(t.Context(), question)) {
		if d.Permitted() {
			permits++
		}
	}
	for range c.SearchSubjects(t.Context(), question) {
	}
	for range c.SearchResources(t.Context(), question) {
	}
	for range c.SearchActions(t.Context(), question) {
	}
	return permits
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	const usual = "POST BASE/access/v1/evaluations POST BASE/access/v1/evaluation POST BASE/access/v1/search/subject POST BASE/access/v1/search/resource POST BASE/access/v1/search/action"
	for name, test := range map[string]struct {
		tenant   string
		metadata step
		want     string
	}{
		"all": {"default", answer(200, metadata),
			"GET https://pdp/.well-known/authzen-configuration POST https://pdp/many POST https://pdp/one POST https://pdp/who POST https://pdp/what POST https://pdp/how"},
		"evaluation only": {"default", answer(200, `{"policy_decision_point":"https://pdp/","access_evaluation_endpoint":"https://pdp:443/one","capabilities":[],"x":1}`),
			"GET https://pdp/.well-known/authzen-configuration POST https://pdp:443/one"},
		"none": {"default", answer(404, ``), "GET https://pdp/.well-known/authzen-configuration " + strings.ReplaceAll(usual, "BASE", "https://pdp")},
		"none, tenant": {"t1", answer(404, ``),
			"GET https://pdp/.well-known/authzen-configuration/tenants/t1 " + strings.ReplaceAll(usual, "BASE", "https://pdp/tenants/t1")},
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			c, _ := scripted(t, []step{seen(&paths, test.metadata)}, authzenclient.WithTenant(test.tenant), authzenclient.WithKey(secret))
			if err := c.Discover(t.Context()); err != nil {
				t.Fatal(err)
			}
			askAll(t, c)
			if got := strings.Join(paths, " "); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// After discovery that failed nothing is guessed: no call is sent.
func TestDiscoverFails(t *testing.T) {
	t.Parallel()
	with := func(old, new string) step { return answer(200, strings.Replace(metadata, old, new, 1)) }
	for name, s := range map[string]step{
		"500":                 answer(500, ``),
		"401":                 answer(401, ``),
		"410":                 answer(410, ``),
		"302":                 answer(302, ``, "Location", "/"),
		"204":                 answer(204, ``),
		"reset":               reset,
		"no JSON":             answer(200, `<html>`),
		"HTML":                answer(200, metadata, "Content-Type", "text/html"),
		"array":               answer(200, `[]`),
		"twice":               with(`{`, `{"policy_decision_point":"https://pdp",`),
		"another PDP":         with(`"https://pdp"`, `"https://other"`),
		"PDP below":           with(`"https://pdp"`, `"https://pdp/tenants/x"`),
		"PDP in upper case":   with(`"https://pdp"`, `"https://PDP"`),
		"PDP over http":       with(`"https://pdp"`, `"http://pdp"`),
		"no PDP":              with(`"policy_decision_point"`, `"issuer"`),
		"PDP is no string":    with(`"https://pdp"`, `7`),
		"other origin":        with(`https://pdp/one`, `https://evil/one`),
		"other port":          with(`https://pdp/who`, `https://pdp:444/who`),
		"other scheme":        with(`https://pdp/many`, `http://pdp/many`),
		"host that looks so":  with(`https://pdp/what`, `https://pdp.evil/what`),
		"user that looks so":  with(`https://pdp/how`, `https://pdp@evil/how`),
		"user":                with(`https://pdp/how`, `https://u:p@pdp/how`),
		"query":               with(`https://pdp/one`, `https://pdp/one?x`),
		"fragment":            with(`https://pdp/one`, `https://pdp/one#x`),
		"relative":            with(`https://pdp/one`, `/one`),
		"empty":               with(`"https://pdp/one"`, `""`),
		"endpoint, no string": with(`"https://pdp/many"`, `{}`),
		"no evaluation":       with(`access_evaluation_endpoint`, `x`),
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			c, _ := scripted(t, []step{seen(&paths, s)}, authzenclient.WithRetries(0))
			if err := c.Discover(t.Context()); err == nil {
				t.Fatal("no error")
			}
			if n := askAll(t, c); n != 0 || len(paths) != 1 {
				t.Errorf("%d permits; requests: %v", n, paths)
			}
		})
	}
}

// Of two bad endpoints the error is always that of the first one.
func TestDiscoverErrorIsOrdered(t *testing.T) {
	t.Parallel()
	bad := strings.NewReplacer(`https://pdp/one`, `https://pdp/one?x`, `https://pdp/how`, `https://evil/how`).Replace(metadata)
	for range 20 {
		c, _ := scripted(t, []step{answer(200, bad)}, authzenclient.WithRetries(0))
		if err := c.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "has a query") {
			t.Fatal(err)
		}
	}
}

func TestDiscoverKeepsWhatItKnew(t *testing.T) {
	t.Parallel()
	var paths []string
	current := answer(200, metadata)
	c, _ := scripted(t, []step{seen(&paths, func(r *http.Request) (*http.Response, error) { return current(r) })})
	if err := c.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	current = answer(500, ``)
	if err := c.Discover(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if d := c.Evaluate(t.Context(), question); !d.Permitted() {
		t.Error(d)
	}
}

// An origin that was allowed gets questions, and no credentials.
func TestEndpointOrigin(t *testing.T) {
	t.Parallel()
	s := func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return answer(200, strings.ReplaceAll(metadata, "https://pdp/", "https://api.pdp/"))(r)
		}
		if r.URL.Host == "api.pdp" && r.Header.Get("Authorization") != "" {
			t.Error("credentials went to another origin")
		}
		return yes(r)
	}
	c, _ := scripted(t, []step{s}, authzenclient.WithEndpointOrigin("https://api.pdp"), authzenclient.WithKey(secret))
	if err := c.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := c.Evaluate(t.Context(), question); !d.Permitted() {
		t.Error(d)
	}
}
