package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
)

// What the log says of approvals, and what else they are held against before anybody
// goes by them. The file of approvals alone is no reason to allow anything.

// recordedLine is what is read back of a step's record, or of a decision's.
type recordedLine struct {
	ID         string    `json:"id"`
	Now        time.Time `json:"now"`
	Kind       string    `json:"kind"`
	Tenant     string    `json:"tenant"`
	Caller     string    `json:"caller"`
	Event      string    `json:"event"`
	Decision   bool      `json:"decision"`
	Discharged []struct {
		Approval string `json:"approval"`
	} `json:"discharged"`
	Obligations jsontext.Value `json:"obligations"`
	Request     jsontext.Value `json:"request"`
	Details     recordedStep   `json:"details"`
}

// stepsOf reads the steps of a line: a step of an approval, or one without a name for
// each approval that a decision went by.
func (l *recordedLine) stepsOf() (steps []approval.Step) {
	switch d := l.Details; {
	case l.Kind == decisionlog.KindApproval:
		return []approval.Step{{
			ID: l.ID, At: l.Now, Name: l.Event, By: d.By, Caller: l.Caller, Reason: d.Reason, To: d.To, From: d.From, ValidUntil: d.ValidUntil, Decision: d.UsedBy, Seal: d.Seal,
			Approval: approval.Approval{ID: d.Approval, Status: d.Status, Version: d.Version, FiledAt: d.FiledAt, ExpiresAt: d.ExpiresAt},
		}}
	case l.Kind == decisionlog.KindDecision && l.Decision:
		for _, one := range l.Discharged {
			steps = append(steps, approval.Step{ID: l.ID, At: l.Now, Decision: l.ID, Approval: approval.Approval{ID: one.Approval}})
		}
	}
	return steps
}

func readLine(line []byte) (l recordedLine, err error) {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err = json.Unmarshal(line, &kind); err == nil && (kind.Kind == decisionlog.KindApproval || kind.Kind == decisionlog.KindDecision) {
		err = json.Unmarshal(line, &l)
	}
	return l, err
}

// attest is a step by the id of its record, if the log vouches for that.
func (a *approvals) attest(ctx context.Context, id string) (step approval.Step, found bool, err error) {
	record, err := a.server.decisions.Attest(ctx, id)
	if errors.Is(err, decisionlog.ErrNotFound) || errors.Is(err, decisionlog.ErrGone) {
		return step, false, nil
	}
	if err != nil {
		return step, false, err
	}
	line, err := readLine(record.Line)
	if steps := line.stepsOf(); err == nil && len(steps) > 0 {
		return steps[0], steps[0].Name != "", nil
	}
	return step, false, err
}

// steps are those of some approvals.
func (a *approvals) steps(ctx context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
	return stepsOf(ctx, a.server.decisions.Approvals, from, ids)
}

// stepsOf are the steps that a log has of some approvals, by [decisionlog.Log.Approvals]
// or [decisionlog.Reader.Approvals].
func stepsOf(ctx context.Context, read func(context.Context, uint64, map[string]bool, func(decisionlog.Record) error) error, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
	all, gone := map[string][]approval.Step{}, false
	var last uint64 // of those that are gone: who knows of that one knows of those before it
	err := read(ctx, from, ids, func(r decisionlog.Record) error {
		if r.Line == nil {
			last, gone = r.Sequence, true
			return nil
		}
		line, err := readLine(r.Line)
		if err != nil {
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		}
		for _, step := range line.stepsOf() {
			all[step.Approval.ID] = append(all[step.Approval.ID], step)
		}
		return nil
	})
	if gone {
		for id := range ids {
			all[id] = append(all[id], approval.Step{Name: approval.StepGone, Approval: approval.Approval{ID: id, After: last}})
		}
	}
	return all, err
}

// inForce says whether a credential may still approve in a tenant. A program that embeds
// the server and tells callers apart itself says so by a method of its own.
func (a *approvals) inForce(tenant, caller string) bool {
	known, says := a.server.live.Load().callers.(interface {
		InForce(tenant, caller string) bool
	})
	return !says || known.InForce(tenant, caller)
}

// samePerson says whether two names are of one person. Where that cannot be said, they
// are.
func (a *approvals) samePerson(tenant, one, other string) bool {
	v := &approver{server: a.server, reviewers: map[reviewerOf]*pdp.Reviewer{}}
	return v.same(tenant, one, other)
}

// openApprovalKey reads the key of approvals, before anything else has to do with them,
// and what the log says of a file of format 1.
func (s *Server) openApprovalKey() (err error) {
	if s.config.Data == "" || s.config.Program.PDP.Recorder != nil {
		return nil
	}
	if err := keyWithFile(s.config.Data); err != nil {
		return err
	}
	if name := filepath.Join(s.config.Data, approval.FileName); !approvalKey.there(s.config.Data) {
		// Nothing in it counts, and without the key nothing can be believed: it is begun anew.
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s belongs to a key that is missing, and cannot be begun anew: %w; move it away", name, err)
		}
	}
	if s.approvalKey, err = approvalKey.open(s.config.Data); err != nil {
		return err
	}
	s.old, err = readEvidence(s.config.Data)
	return err
}

// keyWithFile refuses a file of approvals whose key is missing, if anybody could go by
// what is in it.
func keyWithFile(data string) error {
	if approvalKey.there(data) {
		return nil
	}
	name := filepath.Join(data, approval.FileName)
	open, err := approval.Unkeyed(data)
	const try = "put the key back from a backup, or move the file away to begin without any approval"
	switch {
	case errors.Is(err, approval.ErrLocked):
		return fmt.Errorf("the key of approvals, %s, is missing, and another process has %s open; %s", approvalKey.file, name, try)
	case err != nil:
		return fmt.Errorf("the key of approvals, %s, is missing, and without it nothing in %s can be believed: %w; %s", approvalKey.file, name, err, try)
	case open > 0:
		return fmt.Errorf("the key of approvals, %s, is missing, and %s has %d approval requests that wait or can be used; %s", approvalKey.file, name, open, try)
	}
	return nil
}

// Approvals is what a server would find in a data directory: how many approval
// requests wait, and what the log knows better of which. It touches nothing. The error
// says why [Server.Start] would refuse them.
func Approvals(ctx context.Context, data string, log *decisionlog.Reader) (pending int, behind map[string]approval.Status, err error) {
	if err := keyWithFile(data); err != nil {
		return 0, nil, err
	}
	key, err := approvalKey.read(data)
	if err != nil || key == nil {
		return 0, nil, err
	}
	pending, open, err := approval.Look(data, key)
	if errors.Is(err, approval.ErrOld) {
		_, err = readEvidence(data)
		return pending, nil, err
	}
	if err != nil || len(open) == 0 || log == nil {
		return pending, nil, err
	}
	if err := approval.Whole(open, log.Size()); err != nil {
		return pending, nil, err
	}
	from, ids := approval.From(open)
	steps, err := stepsOf(ctx, log.Approvals, from, ids)
	if err != nil {
		return pending, nil, err
	}
	behind = map[string]approval.Status{}
	for _, a := range open {
		if knows := a.Behind(steps[a.ID]); knows != "" {
			behind[a.ID] = knows
		}
	}
	return pending, behind, nil
}

// evidence is what the log has of the open approvals of a file of format 1. It is read
// once, whole, and verified, because nothing keeps others from writing such a file.
type evidence struct {
	steps map[string][]approval.Step
	filed map[string]recordedLine
	asked map[string]recordedLine // decisions that wait, by their ids
}

// readEvidence is nil where the file is of no old format.
func readEvidence(data string) (*evidence, error) {
	open, is, err := approval.Old(data)
	if err != nil || !is {
		return nil, err
	}
	refuse := func(why string) error {
		return fmt.Errorf("%s has format 1, which nothing keeps others from changing, and %s; put the right file back, or move it away to begin without any approval", filepath.Join(data, approval.FileName), why)
	}
	e := &evidence{steps: map[string][]approval.Step{}, filed: map[string]recordedLine{}, asked: map[string]recordedLine{}}
	wanted := map[string]bool{}
	for _, a := range open {
		wanted[a.ID], wanted[a.Decision] = true, true
	}
	upgraded, unread := false, error(nil)
	type found struct {
		sequence int64
		line     recordedLine
	}
	var named []found // what counts once it is known that a checkpoint covers it
	report := verify.Directory(data, verify.Options{Record: func(sequence int64, line []byte) {
		l, err := readLine(line)
		unread = errors.Join(unread, err)
		if l.Kind == "" {
			var admin struct {
				Event string `json:"event"`
			}
			unread = errors.Join(unread, json.Unmarshal(line, &admin))
			upgraded = upgraded || admin.Event == decisionlog.EventApprovalsUpgraded
			return
		}
		if wanted[l.ID] || slices.ContainsFunc(l.stepsOf(), func(s approval.Step) bool { return wanted[s.Approval.ID] }) {
			named = append(named, found{sequence, l})
		}
	}})
	switch {
	case upgraded:
		return nil, refuse("the log says that it was upgraded before")
	case !report.Verified() || unread != nil:
		return nil, refuse(fmt.Sprintf("the log, which is to vouch for it, does not verify (policy-service log verify %s says why)", data))
	}
	for _, one := range named {
		if one.sequence < report.Size {
			e.take(one.line)
		}
	}
	return e, nil
}

func (e *evidence) take(l recordedLine) {
	if l.Kind == decisionlog.KindDecision {
		e.asked[l.ID] = l
	}
	for _, step := range l.stepsOf() {
		if e.steps[step.Approval.ID] = append(e.steps[step.Approval.ID], step); step.Name == approval.StepFiled {
			e.filed[step.Approval.ID] = l
		}
	}
}

// of are the steps of those approvals that are in the file as the log has them.
func (e *evidence) of(_ context.Context, open []approval.Approval) (map[string][]approval.Step, error) {
	if e == nil {
		return nil, approval.ErrOld
	}
	known := map[string][]approval.Step{}
	for _, a := range open {
		if e.confirms(a) {
			known[a.ID] = e.steps[a.ID]
		}
	}
	return known, nil
}

// confirms reports whether what an approval is for is on record: the request as people
// were shown it, and the terms in the decision that waits.
func (e *evidence) confirms(a approval.Approval) bool {
	l, filed := e.filed[a.ID]
	d := l.Details
	if !filed || l.Tenant != a.Tenant || d.Requester != a.Caller || d.Decision != a.Decision || d.Bundle != a.Bundle || d.Obligation != a.Obligation || d.Asked != a.Via ||
		!d.FiledAt.Equal(a.FiledAt) || !sameJSON(l.Request, a.Shown) {
		return false
	}
	var shown struct {
		Subject  evaluation.Ref `json:"subject"`
		Resource evaluation.Ref `json:"resource"`
		Action   struct {
			Name string `json:"name"`
		} `json:"action"`
	}
	if json.Unmarshal(a.Shown, &shown) != nil || shown.Subject != a.Subject || shown.Resource != a.Resource || shown.Action.Name != a.Action {
		return false
	}
	var owed []struct {
		ID         string         `json:"id"`
		Type       string         `json:"type"`
		Properties jsontext.Value `json:"properties"`
	}
	if json.Unmarshal(e.asked[a.Decision].Obligations, &owed) != nil {
		return false
	}
	for _, o := range owed {
		properties, err := evaluation.ParseObject(o.Properties, evaluation.DefaultLimits())
		t, is := obligations.TermsOf(evaluation.Obligation{ID: o.ID, Type: o.Type, Properties: properties})
		t.Message = a.Terms.Message // masked otherwise, and no part of what is approved
		if err == nil && is && o.ID == a.Obligation && sameTerms(t, a.Terms) {
			return true
		}
	}
	return false
}

func sameTerms(a, b obligations.Terms) bool {
	materials := slices.Equal(a.Material, b.Material)
	a.Material, b.Material = nil, nil
	return materials && fmt.Sprint(a) == fmt.Sprint(b)
}

func sameJSON(a, b jsontext.Value) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	return a.Canonicalize() == nil && b.Canonicalize() == nil && string(a) == string(b)
}

// asShown reports whether what is asked is what people were shown, of an approval from
// a file of format 1: its binding is in no record. Of others the file vouches for that.
func (a *approvals) asShown(ctx context.Context, w pdp.ApprovalRequest, id string) (bool, error) {
	known, found, err := a.store.Get(ctx, id)
	if err != nil || !found || !known.Upgraded {
		return found, err
	}
	q, err := a.question(ctx, w, known.Digest)
	if err != nil {
		return false, err
	}
	if q.Tenant != known.Tenant || q.Caller != known.Caller || q.Obligation != known.Obligation || q.Subject != known.Subject || q.Resource != known.Resource || q.Action != known.Action {
		return false, nil
	}
	asked, err1 := bound(q.Shown, known)
	shown, err2 := bound(known.Shown, known)
	return err1 == nil && err2 == nil && sameJSON(asked, shown), errors.Join(err1, err2)
}

// bound is what an approval is bound to of a request as it is shown.
func bound(request jsontext.Value, a approval.Approval) (jsontext.Value, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(request, &members); err != nil {
		return nil, err
	}
	var context map[string]jsontext.Value
	if c, given := members["context"]; given {
		if err := json.Unmarshal(c, &context); err != nil {
			return nil, err
		}
	}
	out := map[string]any{}
	for _, part := range []string{"subject", "action", "resource"} {
		if slices.Contains(a.Terms.Material, part) {
			out[part] = members[part]
		}
	}
	for name, value := range context {
		whole := slices.Contains(a.Terms.Material, "context") && slices.Contains(a.Members, name)
		if whole || slices.Contains(a.Terms.Material, "context."+name) || evaluation.NamesActors(name) {
			out["context."+name] = value
		}
	}
	return marshal(out)
}

// mark puts on record, before anything can be approved, that from now on no file of
// format 1 counts: where one was taken, or a file begun. Where the record is there, or
// may be, [approvals.remark] looks.
func (a *approvals) mark() error {
	if upgraded := a.store.Upgraded(); upgraded != nil {
		a.server.log.Info("the approval requests were taken over from format 1, as the log has them", "kept", len(upgraded.Kept), "dropped", len(upgraded.Dropped))
		return a.server.events.now(context.Background(), event{decisionlog.EventApprovalsUpgraded, markDetails{1, approval.FormatVersion, upgraded}})
	}
	if a.store.Begun() {
		return a.server.events.now(context.Background(), event{decisionlog.EventApprovalsUpgraded, markDetails{0, approval.FormatVersion, nil}})
	}
	return nil
}

type markDetails struct {
	From   int `json:"from"`
	Format int `json:"format"`
	*approval.Upgraded
}

// remark puts the mark on record again where retention has dropped it, or a crash came
// before it.
func (a *approvals) remark(ctx context.Context) {
	page, err := a.server.decisions.Query(ctx, decisionlog.Query{Filter: decisionlog.Filter{Event: decisionlog.EventApprovalsUpgraded}, Newest: true, Cursor: decisionlog.End, Limit: 1})
	if err == nil && len(page.Lines) == 0 {
		err = a.server.events.now(ctx, event{decisionlog.EventApprovalsUpgraded, markDetails{approval.FormatVersion, approval.FormatVersion, nil}})
	}
	if err != nil && ctx.Err() == nil {
		a.server.log.Error("it cannot be put on record that old files of approvals count no more; it is tried again after the next start", "error", err)
	}
}
