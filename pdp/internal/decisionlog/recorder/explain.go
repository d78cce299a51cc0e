package recorder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/record"
)

// Then is a bundle that decided in the past, with the text of its policies.
type Then struct {
	Bundle   *pdp.Bundle
	files    map[string][]byte
	policies []pdp.PolicyInfo
	starts   map[string][]int    // the lines where policies begin, sorted, by file
	lines    map[string][]string // by file
}

// Compile loads a bundle from the files that were kept of it. The bundle has the tenant even if no file belongs to it:
// files alone do not say that such a tenant existed.
func Compile(files map[string][]byte, tenant string) (*pdp.Bundle, error) {
	fsys := fstest.MapFS{}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: content}
	}
	if at := "tenants/" + tenant; evaluation.IsTenantName(tenant) && tenant != evaluation.DefaultTenant {
		fsys[at] = &fstest.MapFile{Mode: fs.ModeDir | 0o700}
	}
	b, problems := pdp.Load(pdp.FS(fsys))
	if b == nil { // the bundle loaded when it decided, so this version of the program reads bundles differently
		return nil, fmt.Errorf("the bundle of then does not load today: %w", problems)
	}
	return b, nil
}

// ThenOf returns a bundle with the text of its policies in the files.
func ThenOf(b *pdp.Bundle, files map[string][]byte) *Then {
	t := &Then{Bundle: b, files: files, policies: b.Policies(), starts: map[string][]int{}, lines: map[string][]string{}}
	for _, p := range t.policies {
		file, line := place(p.Position)
		t.starts[file] = append(t.starts[file], line)
	}
	for file, starts := range t.starts {
		slices.Sort(starts)
		t.lines[file] = strings.Split(string(files[file]), "\n")
	}
	return t
}

// Policy returns a policy of a tenant, or else of the root.
func (t *Then) Policy(tenant, id string) (pdp.PolicyInfo, bool) {
	for _, owner := range []string{tenant, evaluation.DefaultTenant} {
		n := slices.IndexFunc(t.policies, func(p pdp.PolicyInfo) bool { return p.ID == id && p.Tenant == owner })
		if n >= 0 {
			return t.policies[n], true
		}
	}
	return pdp.PolicyInfo{}, false
}

// Text returns the text of the policy at a position: the lines up to the next policy, without the comments above that.
func (t *Then) Text(position string) string {
	file, start := place(position)
	lines := t.lines[file]
	end := len(lines)
	if n, _ := slices.BinarySearch(t.starts[file], start+1); n < len(t.starts[file]) {
		end = min(end, t.starts[file][n]-1)
	}
	if start < 1 || start > end {
		return ""
	}
	text := lines[start-1 : end]
	for len(text) > 0 {
		last := strings.TrimSpace(text[len(text)-1])
		if last != "" && !strings.HasPrefix(last, "//") {
			break
		}
		text = text[:len(text)-1]
	}
	return strings.Join(text, "\n")
}

// place splits file:line:column. The name of a file may hold colons.
func place(position string) (file string, line int) {
	parts := strings.Split(position, ":")
	if len(parts) < 3 {
		return "", 0
	}
	line, _ = strconv.Atoi(parts[len(parts)-2])
	return strings.Join(parts[:len(parts)-2], ":"), line
}

// An explanation is bounded, because a bundle may have thousands of policies.
const (
	mostExplained = 20       // policies besides those that had a part in the decision
	mostText      = 64 << 10 // bytes of text of all policies
)

// Explain makes a recorded decision again. If another bundle made it, the parts of the policies are those in the new
// answer. An error that is not about the time means that the record or the bundle is at fault.
func (t *Then) Explain(ctx context.Context, r *record.Recorded, limits evaluation.Limits) (*record.Explained, error) {
	return t.ExplainBound(ctx, r, nil, limits)
}

// ExplainBound explains as [Then.Explain] does, by a bundle that did not decide: an approval that was used counts only if
// this bundle binds it to the same values; see [pdp.Call].
func (t *Then) ExplainBound(
	ctx context.Context, r *record.Recorded, bound []byte, limits evaluation.Limits,
) (*record.Explained, error) {
	call, err := CallOf(r, t.Bundle, limits)
	if err != nil {
		return nil, err
	}
	call.Explain, call.Clauses, call.Bound = true, true, bound
	out := &record.Explained{Bundle: t.Bundle.Digest(), Policies: []record.ExplainedPolicy{}}
	d, err := pdp.Of(t.Bundle, pdp.Options{}).Evaluate(ctx, call)
	if unknown := (*pdp.Unknown)(nil); errors.As(err, &unknown) {
		out.DependsOn = &record.Dependence{Paths: unknown.Paths, Policies: unknown.Policies}
	} else if err != nil {
		return nil, err
	} else {
		same := r.Answer() == AnswerOf(d) && r.Reason == string(d.Reason)
		out.Answer, out.Reason, out.Same = AnswerOf(d), d.Reason, &same
	}
	parts := r // the record that says which policies had a part
	if r.Bundle != t.Bundle.Digest() {
		parts = &record.Recorded{Determining: d.Determining, Overruled: d.Overruled, Errors: d.Errors}
	}
	e := d.Explain
	if e == nil {
		e = &evaluation.Explanation{}
	}
	out.Mismatch, out.Dropped = e.Mismatch, e.Dropped
	seen, room := map[string]bool{}, mostText
	add := func(id string, part record.Part) {
		if seen[id] {
			return
		}
		seen[id] = true
		one := record.ExplainedPolicy{Part: part}
		if n := slices.IndexFunc(e.Policies, func(p evaluation.PolicyExplanation) bool { return p.ID == id }); n >= 0 {
			one.PolicyExplanation = e.Policies[n]
		} else if p, found := t.Policy(r.Tenant, id); found {
			one.PolicyExplanation = evaluation.PolicyExplanation{
				ID: p.ID, Effect: p.Effect, Position: p.Position, Verdict: evaluation.UnknownVerdict, Attributes: []evaluation.AttributeRead{},
			}
		} else {
			return
		}
		if text := t.Text(one.Position); len(text) <= room {
			one.Text, room = text, room-len(text)
		}
		out.Policies = append(out.Policies, one)
	}
	for _, id := range parts.Determining {
		add(id, record.Determining)
	}
	for _, id := range parts.Overruled {
		add(id, record.Overruled)
	}
	for _, failed := range parts.Errors {
		add(failed.Policy, record.Erred)
	}
	most := len(out.Policies) + mostExplained
	for _, p := range e.Policies {
		switch {
		case seen[p.ID]:
		case len(out.Policies) >= most:
			out.More++
		case p.Failed != "":
			add(p.ID, record.Near)
		default:
			add(p.ID, "")
		}
	}
	if out.DependsOn != nil {
		for _, id := range out.DependsOn.Policies {
			add(id, "")
		}
	}
	return out, nil
}
