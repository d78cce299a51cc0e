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
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/recorder"
)

// apart are two bundles of nothing but the policies that differ, with all else of the two that they are from. If none of these policies
// is satisfied or has an error, as it was and as it is, the same policies are satisfied in both of the whole bundles, and so the
// answers are one, whatever masks hide. Both are nil where more than policies differs.
type apart struct {
	was, is *pdp.Bundle
	none    bool // no policy differs at all
}

func apartOf(base, candidate *Side) (a apart) {
	s := Differ(base, candidate)
	for _, one := range s.Files {
		if path.Base(one.Path) != manifest && !strings.Contains("/"+one.Path, "/tests/") {
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

// only is the bundle with some of its policies alone, nil if it does not load.
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
		files[at].Data = append(append(files[at].Data, p.text...), '\n')
	}
	b, _ := pdp.Load(pdp.FS(files))
	return b
}

// untouched reports whether the answer to a question is certainly the same. A question of what is possible is not looked at: an answer
// that nothing is may come from a forbid, too.
func (a apart) untouched(ctx context.Context, q *decisionlog.Recorded, limits evaluation.Limits) (bool, error) {
	if a.was == nil || q.Unknown != nil {
		return false, nil
	}
	for _, b := range []*pdp.Bundle{a.was, a.is} {
		if !b.HasTenant(q.Tenant) {
			return false, nil
		}
		call, err := recorder.CallOf(q, b, limits)
		if err != nil {
			return false, nil
		}
		o, err := ask(ctx, b, call)
		if err != nil {
			return false, ctx.Err()
		}
		if o.Answer != decisionlog.Deny || len(o.Determining)+len(o.Overruled)+len(o.Errors) > 0 || o.Reason != "" {
			return false, nil
		}
	}
	return true, nil
}
