package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// library is a bundle of books, of which a reader may read every third.
func library(n int) pdp.Source {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"uid":{"type":"book","id":"b%04d"},"attrs":{"open":%t},"parents":[]}`, i, i%3 == 0)
	}
	return pdptest.Bundle(map[string]string{
		"p.cedar":           `permit(principal is reader, action == Action::"read", resource is book) when { resource.open };`,
		"entities/b.json":   "[" + b.String()[1:] + "]",
		"tenants/t/t.cedar": `permit(principal is nobody, action, resource);`,
	})
}

type page struct {
	Results []struct{ ID string }
	Page    *struct {
		Token *string `json:"next_token"`
	}
}

const books = `{"subject":{"type":"reader","id":"r"},"action":{"name":"read"},"resource":{"type":"book"}`

func search(t *testing.T, s *pdptest.Server, path, body string, headers ...string) (page, int) {
	t.Helper()
	answer := s.Post(path, body, headers...)
	var p page
	if answer.Status == 200 {
		must(t, json.Unmarshal([]byte(answer.Body), &p))
	}
	return p, answer.Status
}

const (
	resources = "/access/v1/search/resource"
	actions   = "/access/v1/search/action"
)

func TestPages(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, library(3000))
	var got []string
	body := books + `,"page":{"limit":300}}`
	for range 20 {
		p, status := search(t, s, resources, body)
		if status != 200 || p.Page == nil || p.Page.Token == nil {
			t.Fatalf("status %d, %+v", status, p)
		}
		for _, r := range p.Results {
			got = append(got, r.ID)
		}
		if *p.Page.Token == "" {
			break
		}
		body = books + fmt.Sprintf(`,"page":{"token":%q}}`, *p.Page.Token)
	}
	if len(got) != 1000 {
		t.Fatalf("%d results, want 1,000", len(got))
	}
	for n, id := range got {
		if id != fmt.Sprintf("b%04d", 3*n) {
			t.Fatalf("result %d is %s", n, id)
		}
	}
	// Exactly as many as fit a page: the candidates behind the last one are
	// still to be examined, so there is another page, which is empty.
	if p, _ := search(t, s, resources, books+`}`); len(p.Results) != 1000 || p.Page == nil || *p.Page.Token == "" {
		t.Errorf("without a limit: %d results, page %v", len(p.Results), p.Page)
	}
	zero, _ := search(t, s, resources, books+`,"page":{"limit":0}}`)
	if len(zero.Results) != 0 || zero.Page == nil || *zero.Page.Token == "" {
		t.Errorf("limit 0: %+v", zero)
	}
}

// A token is for one page of one query of one caller, for an hour.
func TestPageTokens(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	now := func(c *server.Config) {
		c.Program.PDP.Now = func() time.Time { return pdptest.Now.Add(time.Duration(offset.Load())) }
	}
	s, other := pdptest.Start(t, library(30), now), pdptest.Start(t, library(30), now)
	first, _ := search(t, s, resources, books+`,"page":{"limit":2,"properties":{"a":1}}}`)
	token := *first.Page.Token
	with := func(query, page string) string { return query + `,"page":{` + page + `}}` }
	good := fmt.Sprintf(`"token":%q,"properties":{"a":1}`, token)
	flipped := []byte(token)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		server     *pdptest.Server
		path, body string
		want       int
	}{
		"as given":          {s, resources, with(books, good), 200},
		"its own limit":     {s, resources, with(books, good+`,"limit":2`), 200},
		"another limit":     {s, resources, with(books, good+`,"limit":3`), 400},
		"other properties":  {s, resources, with(books, fmt.Sprintf(`"token":%q,"properties":{"a":2}`, token)), 400},
		"no properties":     {s, resources, with(books, fmt.Sprintf(`"token":%q`, token)), 400},
		"tampered":          {s, resources, with(books, fmt.Sprintf(`"token":%q,"properties":{"a":1}`, flipped)), 400},
		"cut":               {s, resources, with(books, fmt.Sprintf(`"token":%q,"properties":{"a":1}`, token[:len(token)-1])), 400},
		"longer":            {s, resources, with(books, fmt.Sprintf(`"token":%q,"properties":{"a":1}`, token+"A")), 400},
		"another server's":  {other, resources, with(books, good), 400},
		"another query":     {s, resources, with(books+`,"context":{"a":1}`, good), 400},
		"an unknown member": {s, resources, with(books+`,"x":1`, good), 400},
		"another endpoint":  {s, "/access/v1/search/subject", with(strings.Replace(books, `"book"`, `"book","id":"b0001"`, 1), good), 400},
		"another tenant":    {s, "/tenants/t" + resources, with(books, good), 400},
	} {
		if _, got := search(t, c.server, c.path, c.body); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	offset.Store(int64(time.Hour - time.Second))
	if _, got := search(t, s, resources, with(books, good)); got != 200 {
		t.Errorf("a second before its end: status %d", got)
	}
	offset.Store(int64(time.Hour))
	if _, got := search(t, s, resources, with(books, good)); got != 400 {
		t.Errorf("after an hour: status %d", got)
	}
}

// What is malformed for every action is the caller's mistake in an action search too;
// what is so for some is none.
func TestActionSearchMalformed(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"bundle.yaml": "unknown_properties: reject\nallow_trivial: true",
		"schema.cedarschema": `entity doc; entity user { n?: Long };
			action any;
			action read in any appliesTo { principal: user, resource: [doc, user], context: { ip?: String } };
			action write in any appliesTo { principal: user, resource: [doc, user], context: { why?: String } };`,
		"p.cedar": `permit(principal, action, resource);`,
	}))
	const (
		doc  = `"subject":{"type":"user","id":"u"},"resource":{"type":"doc","id":"d"}`
		self = `"subject":{"type":"user","id":"u","properties":{"n":1}},"resource":{"type":"user","id":"u","properties":`
	)
	both := []string{"read", "write"}
	for body, want := range map[string][]string{ // none where it is malformed
		doc:                                   both,
		doc + `,"context":{"ip":"x"}`:         {"read"},
		doc + `,"context":{"why":"x"}`:        {"write"},
		doc + `,"context":{"nope":1}`:         nil,
		doc + `,"context":{"ip":"","why":""}`: nil,
		doc + `,"context":{"pdp":{}}`:         nil,
		doc + `,"context":{"approved":"so"}`:  both,
		doc + `,"context":{"approval":"so"}`:  nil, // which is none
		self + `{"n":1}}`:                     both,
		self + `{"n":2}}`:                     nil, // one property of one entity, sent with two values
		self + `{"nope":2}}`:                  nil,
	} {
		body = "{" + body
		status := 200
		if want == nil {
			status = 400
		}
		for _, page := range []string{"}", `,"page":{"limit":0}}`} {
			if answer := s.Post(actions, body+page); answer.Status != status {
				t.Errorf("%s%s: %d %s, want %d", body, page, answer.Status, answer.Body, status)
			}
		}
		var got struct{ Results []struct{ Name string } }
		must(t, json.Unmarshal([]byte(s.Post(actions, body+"}").Body), &got))
		var found, permitted []string
		for _, r := range got.Results {
			found = append(found, r.Name)
		}
		taken := 400 // unless an evaluation takes it
		for _, action := range both {
			answer := s.Post("/access/v1/evaluation", body+`,"action":{"name":"`+action+`"}}`)
			if answer.Status == 200 {
				taken = 200
			}
			if strings.HasPrefix(answer.Body, `{"decision":true`) {
				permitted = append(permitted, action)
			}
		}
		if !slices.Equal(found, want) || !slices.Equal(permitted, want) || taken != status {
			t.Errorf("%s: found %v, evaluations permit %v with status %d, want %v with %d", body, found, permitted, taken, want, status)
		}
	}
}

// A token of one key is none of another's, who may ask the same.
func TestPageTokensAreOfOneCaller(t *testing.T) {
	t.Parallel()
	dir, keys, token := t.TempDir(), map[string]string{}, map[string]string{}
	for _, name := range []string{"one", "two"} {
		keys[name] = addKey(t, dir, name, auth.Grant{Permissions: []auth.Permission{auth.Search}})
	}
	s := pdptest.Start(t, library(30), withData(dir))
	ask := func(name, body string) (page, int) {
		return search(t, s, resources, body, "Authorization", keys[name])
	}
	for name := range keys {
		first, status := ask(name, books+`,"page":{"limit":2}}`)
		if status != 200 {
			t.Fatalf("%s: status %d", name, status)
		}
		token[name] = *first.Page.Token
	}
	for _, of := range []string{"one", "two"} {
		for _, by := range []string{"one", "two"} {
			want := 400
			if of == by {
				want = 200
			}
			if _, got := ask(by, books+fmt.Sprintf(`,"page":{"token":%q}}`, token[of])); got != want {
				t.Errorf("the token of %s, sent by %s: status %d, want %d", of, by, got, want)
			}
		}
	}
}
