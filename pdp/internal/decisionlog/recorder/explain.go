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

// Then is a bundle as it was when it decided, with the text of its policies.
type Then struct {
	Bundle   *pdp.Bundle
	files    map[string][]byte
	policies []pdp.PolicyInfo
	starts   map[string][]int    // the lines where policies begin, by file
	lines    map[string][]string // of these files
}

// Compile makes a bundle of files that were kept. A tenant that had no files of its own is named: nothing else says that
// it was there.
func Compile(files map[string][]byte, tenant string) (*pdp.Bundle, error) {
	fsys := fstest.MapFS{}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: content}
	}
	if at := "tenants/" + tenant; evaluation.IsTenantName(tenant) && tenant != evaluation.DefaultTenant {
		fsys[at] = &fstest.MapFile{Mode: fs.ModeDir | 0o700}
	}
	b, problems := pdp.Load(pdp.FS(fsys))
	if b == nil { // it loaded then: this program reads bundles otherwise than the one that decided
		return nil, fmt.Errorf("the bundle of then does not load today: %w", problems)
	}
	return b, nil
}

// ThenOf is a bundle beside its files.
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

// Policy finds a policy that a tenant has: its own, or one of the root.
func (t *Then) Policy(tenant, id string) (pdp.PolicyInfo, bool) {
	for _, of := range []string{tenant, evaluation.DefaultTenant} {
		n := slices.IndexFunc(t.policies, func(p pdp.PolicyInfo) bool { return p.ID == id && p.Tenant == of })
		if n >= 0 {
			return t.policies[n], true
		}
	}
	return pdp.PolicyInfo{}, false
}

// Text is the file from the policy at a position to the next one, without the comments above the next one.
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
	for len(text) > 0 && beside(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return strings.Join(text, "\n")
}

func beside(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "//")
}

// place splits file:line:column. The name of a file may hold colons itself.
func place(position string) (file string, line int) {
	parts := strings.Split(position, ":")
	if len(parts) < 3 {
		return "", 0
	}
	line, _ = strconv.Atoi(parts[len(parts)-2])
	return strings.Join(parts[:len(parts)-2], ":"), line
}

// mostExplained is how many policies an explanation has besides those that had a part in the decision, and mostText how
// many bytes of text of all of them.
const (
	mostExplained = 20
	mostText      = 64 << 10
)

// Explain decides a recorded decision again, by the bundle that decided it, or by another one, whose policies have the parts that they
// have in its own answer. If its error is not about the time, the record or the bundle is at fault.
func (t *Then) Explain(ctx context.Context, r *record.Recorded, limits evaluation.Limits) (*record.Explained, error) {
	return t.ExplainBound(ctx, r, nil, limits)
}

// ExplainBound is [Then.Explain] of a bundle that did not decide: the approval that was used counts only if it is bound to the same
// by this bundle; see [pdp.Call].
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
	parts := r
	if r.Bundle != t.Bundle.Digest() {
		parts = &record.Recorded{Tenant: r.Tenant, Determining: d.Determining, Overruled: d.Overruled, Errors: d.Errors}
	}
	t.fill(out, parts, d.Explain)
	return out, nil
}

// fill adds the policies: those that have a part first, in its order.
func (t *Then) fill(out *record.Explained, r *record.Recorded, e *evaluation.Explanation) {
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
	for _, id := range r.Determining {
		add(id, record.Determining)
	}
	for _, id := range r.Overruled {
		add(id, record.Overruled)
	}
	for _, failed := range r.Errors {
		add(failed.Policy, record.Erred)
	}
	parts := len(out.Policies)
	for _, p := range e.Policies {
		switch part := record.Part(""); {
		case seen[p.ID]:
		case len(out.Policies) >= parts+mostExplained:
			out.More++
		default:
			if p.Failed != "" {
				part = record.Near
			}
			add(p.ID, part)
		}
	}
	if out.DependsOn != nil {
		for _, id := range out.DependsOn.Policies {
			add(id, "")
		}
	}
}
