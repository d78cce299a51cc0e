package conformance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
)

// The stub's searches and pages.

// stubPage is where a token goes on: after so many results, of this query.
type stubPage struct {
	Query      string `json:"q"`
	After      int    `json:"n"`
	Limit      int    `json:"l"`
	Properties string `json:"p"`
}

func (s *stub) search(o object, sought string) (any, error) {
	query := maps.Clone(o)
	delete(query, "page")
	if sought == "action" {
		delete(query, "action")
	}
	page, paged, err := s.page(o, sought)
	if err != nil {
		return nil, err
	}
	q, err := s.question(query, sought)
	if err != nil {
		return nil, err
	}
	page.Query = digest(sought, query)
	if page.After, err = s.resume(o, &page); err != nil {
		return nil, err
	}
	all := []any{}
	if knownForm(q.subject.typ) && knownForm(q.resource.typ) {
		all = s.find(q, sought, o)
	}
	return s.cut(all, page, paged), nil
}

// find tries every candidate, in order.
func (s *stub) find(q stubQuestion, sought string, o object) []any {
	found := []any{}
	add := func(permitted bool, result any) {
		if permitted || s.searchesDenied {
			found = append(found, result)
		}
	}
	type typed struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	switch sought {
	case "action":
		for _, name := range actionNames {
			add(permits(q.subject, name, nil, q.resource), struct {
				Name string `json:"name"`
			}{name})
		}
	case "subject":
		for _, id := range ids(q.subject.typ) {
			add(permits(stubEntity{typ: q.subject.typ, id: id}, q.action, q.properties, q.resource), typed{q.subject.typ, id})
		}
	case "resource":
		for _, id := range ids(q.resource.typ) {
			add(permits(q.subject, q.action, q.properties, stubEntity{typ: q.resource.typ, id: id}), typed{q.resource.typ, id})
		}
	}
	inner, _ := o[sought].(object)
	if wanted, ok := inner["id"].(string); s.readsSoughtID && ok {
		found = slices.DeleteFunc(found, func(r any) bool { return r.(typed).ID != wanted })
	}
	return found
}

func ids(typ string) []string {
	all := slices.Collect(maps.Keys(stored()[typ]))
	if typ == "user" {
		all = slices.AppendSeq(all, maps.Keys(todoUsers))
	}
	slices.Sort(all)
	return all
}

// page reads the page of a request: limit -1 is none.
func (s *stub) page(o object, _ string) (page stubPage, paged bool, err error) {
	f := &fields{stub: s}
	page.Limit = -1
	in := f.object(o, "", "page", false)
	if v, ok := f.get(in, "limit"); ok {
		n, isNumber := v.(json.Number)
		limit, err := n.Int64()
		if !isNumber || err != nil || limit < 0 {
			f.fail("no count", "/page/limit")
		}
		page.Limit = int(min(limit, 1000))
	}
	if v, ok := f.get(in, "token"); ok {
		if _, isText := v.(string); !isText {
			f.fail("not a string", "/page/token")
		}
	}
	page.Properties = digest("properties", f.object(in, "/page", "properties", false))
	return page, in != nil, f.err
}

// resume opens the token of a request, and refuses one that belongs elsewhere.
func (s *stub) resume(o object, page *stubPage) (int, error) {
	in, _ := o["page"].(object)
	token, ok := in["token"].(string)
	if !ok {
		return 0, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(sealed) < sha256.Size {
		return 0, wrong("no token", "/page/token")
	}
	text := sealed[sha256.Size:]
	var from stubPage
	if err := json.Unmarshal(text, &from); err != nil || !s.trustsTokens && !hmac.Equal(seal(text), sealed[:sha256.Size]) {
		return 0, wrong("no token", "/page/token")
	}
	if page.Limit < 0 && !s.forgetsLimit {
		page.Limit = from.Limit
	}
	if !s.trustsTokens && (from.Query != page.Query || from.Limit != page.Limit && !s.forgetsLimit || from.Properties != page.Properties) {
		return 0, wrong("a token of another query", "/page/token")
	}
	return from.After, nil
}

// cut makes an answer of what was found.
func (s *stub) cut(all []any, page stubPage, paged bool) any {
	type next struct {
		Token *string `json:"next_token,omitempty"`
	}
	type answer struct {
		Page    *next `json:"page,omitempty"`
		Results []any `json:"results"`
	}
	from, to := min(page.After, len(all)), len(all)
	if page.Limit >= 0 {
		to = min(from+page.Limit, len(all))
	}
	token := ""
	if to < len(all) || page.Limit == 0 {
		page.After = to
		if s.overlaps && to > 1 {
			page.After--
		}
		text, _ := json.Marshal(page)
		token = base64.RawURLEncoding.EncodeToString(append(seal(text), text...))
	} else if s.losesLast && from > 0 {
		to--
	}
	a := answer{Results: all[from:to]}
	if paged {
		a.Page = &next{&token}
		if token == "" && s.noLastToken {
			a.Page.Token = nil
		}
	}
	return a
}

func seal(text []byte) []byte {
	m := hmac.New(sha256.New, stubKey)
	m.Write(text)
	return m.Sum(nil)
}

func digest(kind string, v any) string {
	text, _ := json.Marshal([]any{kind, v})
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
