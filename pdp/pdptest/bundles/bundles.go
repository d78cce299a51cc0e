// Package bundles makes no promise: it is for the tests of this module alone. It helps tests that write a small
// bundle, and ask it. It is apart from pdptest, which runs a server.
package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// Files are a bundle's files by path.
type Files map[string]string

// Source is a bundle of them.
func (b Files) Source() pdp.Source {
	fsys := fstest.MapFS{}
	for name, text := range b {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return pdp.FS(fsys)
}

// Load makes a PDP of a bundle that must load.
func (b Files) Load(t testing.TB) *pdp.PDP {
	t.Helper()
	loaded, problems := pdp.Load(b.Source())
	if problems.Refuse() {
		t.Fatalf("the bundle does not load:\n%v", problems)
	}
	return pdp.Of(loaded, pdp.Options{Now: Clock})
}

// Clock is what the clock of each PDP reads.
func Clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Ask returns the answer's body, or the text of what is wrong with the request.
func Ask(t testing.TB, p *pdp.PDP, body string, change ...func(*pdp.Call)) string {
	t.Helper()
	r, err := evaluation.Decode([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		return errorText(t, r, err)
	}
	call := pdp.Call{Request: r}
	for _, c := range change {
		c(&call)
	}
	d, err := p.Evaluate(context.Background(), call)
	if err != nil {
		return errorText(t, r, err)
	}
	ToldOf(t, body, d)
	answer, err := r.Shape.Answer(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// ToldOf fails where a decision that the policies were not asked about does not say why, or
// says so of a place that the body does not have, nor what would be in it.
func ToldOf(t testing.TB, body string, d evaluation.Decision) {
	t.Helper()
	switch d.Reason {
	case evaluation.UnknownType, evaluation.SchemaMismatch, evaluation.UnknownEntity:
		if len(d.Mismatch) == 0 {
			t.Errorf("%s: %s without saying where", body, d.Reason)
		}
	}
	var sent any
	numbers := json.NewDecoder(strings.NewReader(body))
	numbers.UseNumber()
	if err := numbers.Decode(&sent); err != nil {
		t.Fatal(err)
	}
	for n, m := range d.Mismatch {
		if n > 0 && d.Mismatch[n-1].Pointer >= m.Pointer || m.Detail == "" {
			t.Errorf("%s: %v", body, d.Mismatch)
		}
		in, missing := sent, strings.Contains(m.Detail, "not sent")
		for token := range strings.SplitSeq(strings.TrimPrefix(m.Pointer, "/"), "/") {
			token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			switch at := in.(type) {
			case map[string]any:
				in = at[token]
			case []any:
				i, _ := strconv.Atoi(token)
				in = at[i]
			default:
				in = nil
			}
		}
		if (in == nil) != missing && !strings.Contains(m.Detail, "null") {
			t.Errorf("%s: %s is in the body: %v; %s", body, m.Pointer, in != nil, m.Detail)
		}
	}
}

func errorText(t testing.TB, r evaluation.Request, err error) string {
	t.Helper()
	var e *evaluation.Error
	switch {
	case errors.As(err, &e):
		return "400 " + r.Shape.Pointer(e.Pointer)
	case errors.Is(err, pdp.ErrUnknownTenant):
		return "no such tenant"
	}
	t.Fatal(err)
	return ""
}

// The answers without more.
const (
	Allow = `{"decision":true}`
	Deny  = `{"decision":false}`
)

// Reason is the answer that denies for a reason.
func Reason(r evaluation.Reason) string {
	return fmt.Sprintf(`{"decision":false,"context":{"reason":%q}}`, r)
}

// Q writes a request: subject type:id, action, resource type:id, then members
// in JSON: s{…} subject properties, a{…}, r{…}, c{…} context.
func Q(subject, action, resource string, more ...string) string {
	member := func(prefix string) string {
		for _, m := range more {
			if rest, ok := strings.CutPrefix(m, prefix); ok {
				return rest
			}
		}
		return "{}"
	}
	entity := func(ref, properties string) string {
		typ, id, _ := strings.Cut(ref, ":")
		return fmt.Sprintf(`{"type":%q,"id":%q,"properties":%s}`, typ, id, properties)
	}
	return fmt.Sprintf(`{"subject":%s,"action":{"name":%q,"properties":%s},"resource":%s,"context":%s}`,
		entity(subject, member("s")), action, member("a"), entity(resource, member("r")), member("c"))
}

// Entities is a file of entities.
func Entities(list ...string) string { return "[" + strings.Join(list, ",") + "]" }

// Entity is one of them; its parents are written type:id.
func Entity(typ, id, attrs string, parents ...string) string {
	for i, p := range parents {
		typ, id, _ := strings.Cut(p, ":")
		parents[i] = fmt.Sprintf(`{"type":%q,"id":%q}`, typ, id)
	}
	return fmt.Sprintf(`{"uid":{"type":%q,"id":%q},"attrs":%s,"parents":[%s]}`, typ, id, attrs, strings.Join(parents, ","))
}

// One is a bundle of one policy file, and of pairs of name and text of others.
func One(policies string, more ...string) Files {
	b := Files{"p.cedar": policies}
	for i := 0; i+1 < len(more); i += 2 {
		b[more[i]] = more[i+1]
	}
	return b
}

// Decoded is the request that a body is.
func Decoded(t *testing.T, body string) evaluation.Request {
	t.Helper()
	r, err := evaluation.Decode([]byte(body), "default", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// NotKnowing puts places that are not known into a request.
func NotKnowing(body string, unknown ...string) string {
	return strings.TrimSuffix(body, "}") + `,"options":{"unknown":["` + strings.Join(unknown, `","`) + `"]}}`
}

// Again is the decision, or the places on which it hangs.
func Again(t *testing.T, b *pdp.Bundle, call pdp.Call) string {
	t.Helper()
	d, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), call)
	var unknown *pdp.Unknown
	switch {
	case errors.As(err, &unknown):
		return strings.Join(unknown.Paths, " ")
	case err != nil:
		t.Fatal(err)
	case d.Reason != "":
		return "deny " + string(d.Reason)
	case d.Allow:
		return "allow"
	case d.Possible == evaluation.Possible:
		return "possible"
	case d.Possible == evaluation.Impossible:
		return "impossible"
	}
	return "deny"
}
