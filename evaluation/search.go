package evaluation

import (
	"crypto/sha256"
	"strings"
)

// Search is the body of a search request: which subjects, resources or actions
// would be permitted?
type Search struct {
	Kind SearchKind
	// Request is the request without what is searched for: the id of its
	// subject or resource, or its action, is empty.
	Request Request
	Page    Page
	// Hash is of the body but for its page: a page token is for one query.
	Hash [sha256.Size]byte
}

// SearchKind is what a search looks for.
type SearchKind string

// The kinds of a [Search].
const (
	SubjectSearch  SearchKind = "subject"
	ResourceSearch SearchKind = "resource"
	ActionSearch   SearchKind = "action"
)

// Page is the page member of a search request.
type Page struct {
	Sent       bool
	Token      string
	Limit      int // -1 where none was sent
	Properties Object
}

// MaxPage is the default and the greatest number of results in a page.
const MaxPage = 1000

// Found is one result of a search: an entity, or an action by its name, and
// what the PEP must do besides where it goes by it.
type Found struct {
	Type, ID, Name string
	Obligations    []Obligation
}

// DecodeSearch reads the body of an AuthZEN search request. Of the entity that
// is searched for only the type counts, of the action nothing.
func DecodeSearch(kind SearchKind, body []byte, tenant string, limits Limits) (Search, error) {
	o, err := parse(body, limits)
	if err != nil {
		return Search{}, err
	}
	var r reader
	s := Search{Kind: kind, Page: r.page(o)}
	q := Request{Tenant: tenant, Context: r.optional(o, "context")}
	q.Subject = r.entity(o, "subject", kind == SubjectSearch)
	q.Resource = r.entity(o, "resource", kind == ResourceSearch)
	if kind != ActionSearch {
		action := r.object(o, "action")
		q.Action = Action{r.text(action, "action", "name"), r.optional(action, "action", "properties")}
	}
	if q.Tenant == "" {
		q.Tenant = DefaultTenant
	}
	s.Hash = sha256.Sum256(o.Without(func(name string) bool { return name == "page" }).Value().append(nil))
	s.Request, err = r.done(q)
	return s, err
}

func (r *reader) entity(o Object, name string, searched bool) Entity {
	e := r.object(o, name)
	if searched {
		return Entity{Type: r.text(e, name, "type")}
	}
	return Entity{r.text(e, name, "type"), r.text(e, name, "id"), r.optional(e, name, "properties")}
}

func (r *reader) page(o Object) Page {
	v, sent := r.member(o, []string{"page"}, false, Map, "an object")
	page := v.Object()
	p := Page{Sent: sent, Limit: -1, Properties: r.optional(page, "page", "properties")}
	if token, ok := r.member(page, []string{"page", "token"}, false, String, "a string"); ok {
		p.Token = token.Text()
	}
	if limit, ok := r.member(page, []string{"page", "limit"}, false, Number, "a number"); ok {
		n, whole := limit.Scaled(0)
		if !whole && strings.Trim(limit.Text(), "0123456789") == "" {
			n, whole = MaxPage, true // beyond int64, and so beyond the greatest page
		}
		r.want(whole && n >= 0, "not a whole number from 0 to 1,000", "page", "limit")
		p.Limit = int(min(n, MaxPage))
	}
	return p
}

// AnswerSearch is the body of a search answer. Without a page there was none
// asked for, and none is needed.
func AnswerSearch(kind SearchKind, found []Found, page *string) []byte {
	b := append(make([]byte, 0, 48*len(found)+96), '{')
	if page != nil { // first, as the specification recommends: who reads a stream knows at once
		b = appendString(append(b, `"page":{"next_token":`...), *page)
		b = append(b, "},"...)
	}
	b = append(b, `"results":[`...)
	for n, f := range found {
		if n > 0 {
			b = append(b, ',')
		}
		if kind == ActionSearch {
			b = appendString(append(b, `{"name":`...), f.Name)
		} else {
			b = appendString(append(b, `{"type":`...), f.Type)
			b = appendString(append(b, `,"id":`...), f.ID)
		}
		if len(f.Obligations) > 0 {
			b = appendObligations(append(b, `,"obligations":`...), f.Obligations)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}
