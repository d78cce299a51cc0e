package evaluation

import (
	"cmp"
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

// SearchKind is the kind of the results of a search.
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
	return decode(body, limits, func(r *reader, o Object) Search {
		s := Search{Kind: kind, Page: r.page(o)}
		q := Request{Tenant: cmp.Or(tenant, DefaultTenant), Context: r.optional(o, "context"), Unknown: r.unknown(r.optional(o, "options"), "options")}
		q.Subject = r.entity(o, kind == SubjectSearch, "subject")
		q.Resource = r.entity(o, kind == ResourceSearch, "resource")
		if kind != ActionSearch {
			q.Action = r.action(o, "action")
		}
		r.checkContext(q.Context)
		q.Draft = draftOf(AuthZEN, q.Context)
		r.want(!has(q.Context, capabilityMember), "a search takes no capability", "context", capabilityMember)
		s.Request = q
		s.Hash = sha256.Sum256(o.Without(func(name string) bool { return name == "page" }).Value().append(nil))
		return s
	})
}

// deepest is how many names the path to a part of an entity or an action has at the most.
const deepest = 4

// entity reads the entity at a path. Of an entity that is searched for, it reads the type alone.
func (r *reader) entity(o Object, searched bool, path ...string) Entity {
	e, at := r.object(o, path...), append(make([]string, 0, deepest), path...)
	if searched {
		return Entity{Type: r.text(e, append(at, "type")...)}
	}
	return Entity{
		Type:       r.text(e, append(at, "type")...),
		ID:         r.text(e, append(at, "id")...),
		Properties: r.optional(e, append(at, "properties")...),
	}
}

// action reads the action at a path.
func (r *reader) action(o Object, path ...string) Action {
	a, at := r.object(o, path...), append(make([]string, 0, deepest), path...)
	return Action{r.text(a, append(at, "name")...), r.optional(a, append(at, "properties")...)}
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

// AnswerSearch is the body of a search answer by a draft. Without a page there was none
// asked for, and none is needed.
func AnswerSearch(kind SearchKind, draft Draft, found []Found, page *string) []byte {
	if draft == October {
		found = nameObligations(found)
	}
	b := append(make([]byte, 0, 48*len(found)+96), '{')
	if page != nil { // first, as the specification recommends: a reader of a stream knows at once
		b = appendString(append(b, `"page":{"next_token":`...), *page)
		b = append(b, "},"...)
	}
	b = appendList(append(b, `"results":[`...), found, func(b []byte, f Found) []byte {
		if kind == ActionSearch {
			b = appendString(append(b, `{"name":`...), f.Name)
		} else {
			b = appendString(append(b, `{"type":`...), f.Type)
			b = appendString(append(b, `,"id":`...), f.ID)
		}
		b = draft.appendResult(b, f.Obligations)
		return append(b, '}')
	})
	return append(b, "]}"...)
}
