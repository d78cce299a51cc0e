package conformance

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
)

func searchFaults() []fault {
	searching := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/search/") }
	denied := results(func(all []any) any { return append(all, object{"type": "user", "id": "bob"}, object{"name": "write"}) })
	sought := func(part string) faulty {
		return after(func(r *http.Request, a *httptest.ResponseRecorder) {
			var asked map[string]object
			_ = json.NewDecoder(r.Body).Decode(&asked)
			edited(a, func(o object) {
				all, _ := o["results"].([]any)
				o["results"] = slices.DeleteFunc(all, func(one any) bool { return one.(object)["id"] != asked[part]["id"] })
			})
		})
	}
	return []fault{
		{"no results member", "c-4-2-1", answering(func(o object) { delete(o, "results") })},
		{"results under another name", "c-4-3-1", answering(func(o object) { o["resources"] = o["results"]; delete(o, "results") })},
		{"null for nothing", "c-4-6-1", results(func(all []any) any {
			if len(all) == 0 {
				return nil
			}
			return all
		})},
		{"404 for a type nobody knows", "c-4-6-2", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(a.Body.String(), `"results":[]`) {
				a.Code = 404
			}
		})},
		{"results are bare ids", "c-4-2-1", results(func(all []any) any { return each(all, func(o object) any { return o["id"] }) })},
		{"actions are bare names", "c-4-4-1", results(func(all []any) any { return each(all, func(o object) any { return o["name"] }) })},
		{"actions have an id for a name", "actions-only-actions", results(func(all []any) any {
			return each(all, func(o object) any { return object{"id": o["name"]} })
		})},
		{"results of another type among them", "resources-only-of-the-type", results(func(all []any) any { return append(all, object{"type": "collection", "id": "x"}) })},
		{"resources in a subject search", "subjects-only-of-the-type", results(func(all []any) any { return append(all, object{"type": "record", "id": "record-1"}) })},
		{"one result too many", "search-interop-resources-bob-delete", results(func(all []any) any { return append(all, object{"type": "record", "id": "101"}) })},
		{"a result twice", "search-interop-subjects-view-101", results(func(all []any) any { return append(all, all[0]) })},
		{"loses a result", "search-interop-actions-alice-101", results(func(all []any) any { return all[1:] })},
		{"finds what is denied", "subjects-what-is-denied", denied},
		{"finds actions that are denied", "actions-what-is-denied", denied},
		{"reads the id that it should ignore", "subjects-id-ignored", sought("subject")},
		{"reads the resource's id", "resources-id-ignored", sought("resource")},
		{"an action search needs an action", "actions-request-id", refusing(func(r *http.Request, o object) bool {
			return strings.HasSuffix(r.URL.Path, "/search/action") && o["action"] == nil
		})},
		{"a search without an action", "c-4-7-1-action", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if searching(r) && a.Code == 400 {
				a.Header().Set("Content-Type", "application/json")
				replace(a, 200, `{"results":[]}`)
			}
		})},
		{"unordered", "bytes-resources", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			replace(a, a.Code, strings.Replace(a.Body.String(), `{"type":"record","id":"101"},{"type":"record","id":"107"}`, `{"type":"record","id":"107"},{"type":"record","id":"101"}`, 1))
		})},
		{"id before type", "bytes-subjects", results(func(all []any) any { return all })},
	}
}

func each(all []any, change func(o object) any) []any {
	for n := range all {
		all[n] = change(all[n].(object))
	}
	return all
}

func pageFaults() []fault {
	paging := func(change func(page object)) faulty {
		return answering(func(o object) {
			if page, ok := o["page"].(object); ok {
				change(page)
			}
		})
	}
	var last any // result of the page before
	return []fault{
		{"fails where a page is asked for", "c-4-5-1", refusing(func(_ *http.Request, o object) bool { return o["page"] != nil })},
		{"fails where a page is asked for, action search", "c-4-5-4", refusing(func(r *http.Request, o object) bool {
			return o["page"] != nil && strings.HasSuffix(r.URL.Path, "action")
		})},
		{"refuses its own token", "c-4-5-2", refusing(func(_ *http.Request, o object) bool {
			page, _ := o["page"].(object)
			return page["token"] != nil
		})},
		{"refuses a token without a limit", "c-4-5-2-token-alone", refusing(func(_ *http.Request, o object) bool {
			page, _ := o["page"].(object)
			return page["token"] != nil && page["limit"] == nil
		})},
		{"the token is in token", "c-4-5-3", paging(func(page object) { page["token"] = page["next_token"]; delete(page, "next_token") })},
		{"the token is a number", "c-4-5-1", paging(func(page object) { page["next_token"] = 7 })},
		{"null for the last token", "pages-walk-none", paging(func(page object) {
			if page["next_token"] == "" {
				page["next_token"] = nil
			}
		})},
		{"no token on the last page", "c-4-5-2", paging(func(page object) {
			if page["next_token"] == "" {
				delete(page, "next_token")
			}
		})},
		{"count is a string", "c-4-5-3", paging(func(page object) { page["count"] = "1" })},
		{"repeats a result over two pages", "pages-walk-seven", answering(func(o object) {
			all, _ := o["results"].([]any)
			if last != nil && len(all) > 0 {
				all[0] = last
			}
			if len(all) > 0 {
				last = all[len(all)-1]
			}
		})},
		{"loses the last result of a page", "pages-walk-exact-fit", answering(func(o object) {
			if all, _ := o["results"].([]any); len(all) > 1 {
				o["results"] = all[:len(all)-1]
			}
		})},
		{"more than the limit on a page", "pages-walk-resources", asking(func(_ *http.Request, o object) {
			if page, ok := o["page"].(object); ok && page["limit"] == 1.0 {
				page["limit"] = 2
			}
		})},
		{"the same page for ever", "pages-walk-subjects", asking(func(_ *http.Request, o object) { drop(o, "page", "token") })},
		{"the last page has a token too", "pages-walk-actions", paging(func(page object) {
			if page["next_token"] == "" {
				page["next_token"] = base64.RawURLEncoding.EncodeToString(make([]byte, 40))
			}
		})},
		{"takes a token of another query", "token-changed-subject", trusting},
		{"takes a token of another query, as the specification sees it", "pages-changed-query", trusting},
		{"takes a token of another endpoint", "token-other-endpoint", trusting},
		{"takes a token with another limit", "token-changed-limit", trusting},
		{"forgets the limit of a token", "token-without-limit", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"limit"`) {
				edited(a, func(o object) { o["results"] = []any{} })
			}
		})},
		{"takes an altered token", "token-longer", asking(func(_ *http.Request, o object) {
			if page, ok := o["page"].(object); ok {
				if token, ok := page["token"].(string); ok {
					page["token"] = strings.TrimSuffix(token, "A")
				}
			}
		})},
		{"a token that nobody gave is the beginning", "resources-token-invented", asking(func(_ *http.Request, o object) { drop(o, "page", "token") })},
		{"a negative limit is none", "resources-limit-negative", asking(func(_ *http.Request, o object) { drop(o, "page", "limit") })},
		{"a limit of 0 is none", "limit-zero", asking(func(_ *http.Request, o object) {
			if page, ok := o["page"].(object); ok && page["limit"] == 0.0 {
				delete(page, "limit")
			}
		})},
		{"a page though nobody asked", "resources-no-page-unless-asked", answering(func(o object) {
			if o["results"] != nil {
				o["page"] = object{"next_token": ""}
			}
		})},
		{"page comes last", "pages-page-first", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			var o struct {
				Results json.RawMessage `json:"results,omitempty"`
				Page    json.RawMessage `json:"page,omitempty"`
			}
			if json.Unmarshal(a.Body.Bytes(), &o) == nil && o.Page != nil {
				text, _ := json.Marshal(o)
				replace(a, 200, string(text))
			}
		})},
	}
}

// trusting takes a token for the query that it was given for, whatever it comes with.
func trusting(right http.Handler) http.Handler {
	type query struct {
		path string
		body object
	}
	given := map[any]query{} // by token
	tokenOf := func(o object, name string) any {
		page, _ := o["page"].(object)
		return page[name]
	}
	return asking(func(r *http.Request, o object) {
		token := tokenOf(o, "token")
		if q, known := given[token]; known {
			clear(o)
			maps.Copy(o, q.body)
			r.URL.Path = q.path
			page := maps.Clone(o["page"].(object))
			page["token"], o["page"] = token, page
		}
	})(after(func(r *http.Request, a *httptest.ResponseRecorder) {
		q := query{path: r.URL.Path}
		_ = json.NewDecoder(r.Body).Decode(&q.body)
		edited(a, func(o object) {
			if token := tokenOf(o, "next_token"); token != nil {
				given[token] = q
			}
		})
	})(right))
}
