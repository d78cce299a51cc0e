package broker

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/visible"
)

const (
	// comparedText and comparedTexts bound the texts of a request that are compared, in bytes and in number, and mostAlike
	// bounds how many are named.
	comparedText  = 256
	comparedTexts = 1000
	mostAlike     = 20
	// mostKnown is how many tenants' ids are kept.
	mostKnown = 16
)

// knownIDs are the ids that tenants' parts of the bundle know.
type knownIDs struct {
	mu       sync.Mutex
	digest   string
	byTenant map[string]*visible.Known
}

func (k *knownIDs) of(b *pdp.Bundle, tenant string) *visible.Known {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.digest != b.Digest() || len(k.byTenant) >= mostKnown && k.byTenant[tenant] == nil {
		k.digest, k.byTenant = b.Digest(), map[string]*visible.Known{}
	}
	if k.byTenant[tenant] == nil {
		k.byTenant[tenant] = visible.NewKnown(b.IDs(tenant))
	}
	return k.byTenant[tenant]
}

// alike are the names and the arguments in a request that look like an id that its tenant's part of the bundle knows.
func (b *Broker) alike(a approval.Approval) []evaluation.AlikeText {
	found := []evaluation.AlikeText{}
	bundle := b.options.PDP().Bundle()
	var request map[string]any
	if bundle == nil || json.Unmarshal(a.Shown, &request) != nil {
		return found
	}
	known, left := b.known.of(bundle, a.Tenant), comparedTexts
	compare := func(at jsontext.Pointer, text string) {
		if left--; left < 0 || len(text) > comparedText || len(found) == mostAlike {
			return
		}
		if id, is := known.Like(text); is {
			found = append(found, evaluation.AlikeText{Pointer: string(at), Known: id})
		}
	}
	of := func(path ...string) {
		at, v := jsontext.Pointer(""), any(request)
		for _, name := range path {
			object, _ := v.(map[string]any)
			at, v = at.AppendToken(name), object[name]
		}
		texts(at, v, compare)
	}
	of("subject", "id")
	of("action", "name")
	of("resource", "id")
	context, _ := request["context"].(map[string]any)
	if _, typed := context["agent"].(map[string]any); typed {
		of("context", "agent", "id")
	} else {
		of("context", "agent")
	}
	chain, _ := context["on_behalf_of"].([]any)
	of("context", "on_behalf_of", "id") // of one
	for n, one := range chain {
		object, _ := one.(map[string]any)
		texts(jsontext.Pointer("/context/on_behalf_of").AppendToken(strconv.Itoa(n)).AppendToken("id"), object["id"], compare)
	}
	of("context", "requester", "id")
	of("context", "arguments")
	return found
}

// texts calls a function with each text in a value, in the order of names and places.
func texts(at jsontext.Pointer, v any, do func(at jsontext.Pointer, text string)) {
	switch v := v.(type) {
	case string:
		do(at, v)
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts(at.AppendToken(name), v[name], do)
		}
	case []any:
		for n, one := range v {
			texts(at.AppendToken(strconv.Itoa(n)), one, do)
		}
	}
}
