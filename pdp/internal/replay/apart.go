package replay

import (
	"context"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// apart are two bundles of nothing but the policies that differ, with all else of the two that they are from. If none of these policies
// can be satisfied or have an error, as it was and as it is, the same policies are satisfied in both of the whole bundles, and so the
// answers are one, whatever masks hide. To see that, each of these policies forbids here what one more policy permits: a permit that
// may apply, or a forbid where nothing is permitted, would change no answer. Both are nil where more than policies differs.
type apart struct {
	was, is *pdp.Bundle
	none    bool // nothing differs but comments, layout and tests
}

func apartOf(base, candidate *Side) (a apart) {
	s := Differ(base, candidate)
	if !slices.Equal(slices.Sorted(slices.Values(base.Bundle.Tenants())), slices.Sorted(slices.Values(candidate.Bundle.Tenants()))) {
		return apart{}
	}
	for _, one := range s.Files {
		if one.Path != manifest && !isTest(one.Path) {
			return apart{}
		}
	}
	var differ []PolicyChange
	for _, one := range s.Policies {
		if one.Change == Added || one.Change == Removed || one.Change == Edited {
			differ = append(differ, one)
		}
	}
	if len(differ) == 0 {
		return apart{none: true}
	}
	if a.was, a.is = base.only(differ), candidate.only(differ); a.was == nil || a.is == nil {
		return apart{}
	}
	return a
}

// manifest lists the files of a bundle, which has others here.
const manifest = "MANIFEST"

// isTest reports whether a file is one of the tests of a bundle, or of a tenant of it.
func isTest(name string) bool {
	parts := strings.Split(name, "/")
	if parts[0] == "tenants" {
		parts = parts[min(2, len(parts)):]
	}
	return len(parts) > 1 && parts[0] == "tests"
}

// permitsAll has a condition, because a bundle that permits everything without one does not load.
const permitsAll = "apart.cedar:permits"

// only is the bundle with some of its policies alone, which forbid, and a permit. It is nil if it does not load.
func (s *Side) only(policies []PolicyChange) *pdp.Bundle {
	files := fstest.MapFS{}
	for name, content := range s.Files {
		if !isPolicies(name) && path.Base(name) != manifest {
			files[name] = &fstest.MapFile{Data: content}
		}
	}
	for _, tenant := range s.Bundle.Tenants() { // also one without files
		if tenant != evaluation.DefaultTenant {
			files["tenants/"+tenant] = &fstest.MapFile{Mode: fs.ModeDir | 0o700}
		}
	}
	files["apart.cedar"] = &fstest.MapFile{Data: []byte(`@id("` + permitsAll + `") permit (principal, action, resource) when { principal == principal };` + "\n")}
	all := s.policies()
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		p := all[key]
		if !slices.ContainsFunc(policies, func(c PolicyChange) bool { return c.Tenant == key.tenant && c.ID == key.id }) {
			continue
		}
		at := "apart.cedar"
		if key.tenant != evaluation.DefaultTenant {
			at = "tenants/" + key.tenant + "/" + at
		}
		if files[at] == nil {
			files[at] = &fstest.MapFile{}
		}
		text, whole := forbidding(p.text)
		if !whole {
			return nil
		}
		files[at].Data = append(append(files[at].Data, text...), '\n')
	}
	b, _ := pdp.Load(pdp.FS(files))
	return b
}

// forbidding are the policies of a text, each as a forbid without annotations. They are whole unless another policy begins or ends in a
// line of theirs.
func forbidding(text string) (forbids string, whole bool) {
	var words []string
	begins, annotated, last := true, false, ""
	for token := range cedartext.Tokens(text) {
		if token.Trivia() {
			continue
		}
		switch last = token.Text; {
		case annotated:
			annotated = last != ")"
			continue
		case begins && last == "@":
			annotated = true
			continue
		case begins && last != "permit" && last != "forbid":
			return "", false
		case begins:
			begins, words = false, append(words, "forbid")
			continue
		}
		words, begins = append(words, last), last == ";"
	}
	return strings.Join(words, " "), last == ";"
}

// untouched reports whether the answer to a question is certainly the same. A question with unknown places is not looked at, nor one that
// was asked with an approval: the policies are asked twice then. A caller without a capability may be told that it needs one, so these
// policies are asked with a capability, too.
func (a apart) untouched(ctx context.Context, q *record.Recorded, limits evaluation.Limits) (bool, error) {
	if a.was == nil || q.Unknown != nil || q.Approved || len(q.Discharged) > 0 {
		return false, nil
	}
	for _, b := range []*pdp.Bundle{a.was, a.is} {
		call, err := recorder.CallOf(q, b, limits)
		if err != nil || !b.HasTenant(q.Tenant) {
			return false, nil
		}
		held := call
		held.Capability.Held = true
		for _, call := range []pdp.Call{call, held} {
			o, err := ask(ctx, b, call)
			if err != nil {
				return false, ctx.Err()
			}
			if o.Answer != record.Allow || !slices.Equal(o.Determining, []string{permitsAll}) || len(o.Errors) > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}
