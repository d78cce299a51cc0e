package pdp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/replay"
	"policy-service/pdp/pdptest/night"
)

// TestPropertyDecisionsAreMadeAgainFromTheLog: what is on record is enough to make each decision
// again. Without a mask the same bundle gives the same record, member by member. With masks it gives
// the same answer, or names a masked place.
//
// It takes a second or two: it waits for the disk after each record.
func TestPropertyDecisionsAreMadeAgainFromTheLog(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	pdp.EachWorld(t, 60, func(t *testing.T, w pdp.GeneratedWorld) {
		var patterns []string
		if w.IntN(3) > 0 {
			for _, pattern := range []string{
				"/context/s", "/context/n", "/context/flag", "/context/groups", "/context/groups/*", "/context/odd", "/subject/properties/opt",
				"/subject/properties/s", "/subject/properties/n", "/resource/properties/n", "/resource/properties/flag", "/context/supported_obligations/*",
				"/context/approval", "/context/approval/continues", "/context/approval/continues/round", "/context/approval/continues/decision",
			} {
				if w.IntN(4) == 0 {
					patterns = append(patterns, pattern, strings.Replace(pattern, "/supported_obligations", "/supported_mandatory_extensions", 1))
				}
			}
		}
		a := againstTheLog(t, w, patterns)
		defer func() { _ = a.log.Close() }()
		for range 12 {
			switch call := w.Question(t); w.IntN(7) {
			case 0:
				a.batch(call)
			case 1, 2:
				a.approved(call, w.IntN(2) == 0)
			case 3:
				a.single(call.Native())
			case 4:
				a.batch(w.Unknown(t, call))
			case 5:
				a.single(w.Unknown(t, call))
			default:
				a.single(call)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(a.sent)) {
			kinds[a.check(id)]++
			if t.Failed() {
				t.Fatalf("seed %d, masks %q", w.Seed(), patterns)
			}
		}
		if a.recheck(); w.Seed()%2 == 0 {
			a.compare()
		}
		for kind, n := range a.kinds {
			kinds[kind] += n
		}
	})
	t.Log(kinds)
	for _, kind := range []string{"same", "same answer", "unknown", "registered", "native", "item", "approved allow", "approved deny", "masked", "continued", "continued, and masked", "possible", "impossible", "possible, and masked", "possible, and hangs", "question of a batch", "rechecked", "rechecked, and hangs", "compared", "narrowed", "otherwise"} {
		if kinds[kind] < night.Cases(5) {
			t.Errorf("%d cases are %s: the generator does not test what it should", kinds[kind], kind)
		}
	}
	if kinds["two answers"] == 0 && !testing.Short() && !pdp.FewSeeds() {
		t.Error("no change hangs on a hidden value: the generator does not test what it should")
	}
	if missed := kinds["one answer, not found out"]; !testing.Short() && missed*10 > kinds["one answer"]+missed {
		t.Errorf("of %d changes that hang on no hidden value %d are not found out", kinds["one answer"]+missed, missed)
	}
	if kinds["unknown"] > 2*kinds["same answer"] {
		t.Errorf("%d decisions are unknown, and %d are made again: the first are too many", kinds["unknown"], kinds["same answer"])
	}
}

// onRecord puts calls on record, and makes their decisions again.
type onRecord struct {
	*testing.T
	world  pdp.GeneratedWorld
	bundle *pdp.Bundle
	// patterns are the places that are masked.
	patterns []string
	desk     *desk
	first    *pdp.PDP
	log      *decisionlog.Log
	again    *decisionlog.Log
	record   recorder.Recorder // onto again
	sent     map[string]pdp.Call
	kinds    map[string]int
	ids      int
}

func againstTheLog(t *testing.T, w pdp.GeneratedWorld, patterns []string) *onRecord {
	masker, err := mask.New(make([]byte, mask.KeySize), patterns)
	if err != nil {
		t.Fatal(err)
	}
	onto := func(log *decisionlog.Log) recorder.Recorder {
		return recorder.Recorder{
			Log: log, Mask: func(context.Context) *mask.Masker { return masker },
			GoOn: func(context.Context) error { return nil }, Waits: func(context.Context) {},
		}
	}
	var logs [2]*decisionlog.Log
	for n := range logs {
		if logs[n], err = decisionlog.Open(t.TempDir(), decisionlog.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = logs[n].Close() })
	}
	a := &onRecord{T: t, world: w, patterns: patterns, bundle: w.Bundle(t), log: logs[0], again: logs[1], record: onto(logs[1]), sent: map[string]pdp.Call{}, kinds: map[string]int{}}
	a.desk = &desk{approved: map[string]int{}}
	first := onto(logs[0])
	a.first = pdp.Of(a.bundle, pdp.Options{Now: clock, Approvals: a.desk, Recorder: &first, NewID: func() string { a.ids++; return fmt.Sprint("d", a.ids) }})
	return a
}

// recheck asks all questions of the log again at once.
func (a *onRecord) recheck() {
	got, err := replay.Recheck(a.Context(), keptBundle{a.log, a.world.Files()}, replay.Options{})
	if err != nil || got.Different > 0 || len(got.Incomplete) > 0 {
		a.Errorf("asked again, %v: %+v", err, got)
	}
	a.kinds["rechecked"] += int(got.Same)
	a.kinds["rechecked, and hangs"] += int(got.Hidden)
}

// compare compares what an edit of the bundle changes with what two bundles answer, one question after the other, whose every policy
// is asked.
func (a *onRecord) compare() {
	files, edit := a.world.Edited(a.patterns)
	candidate, _ := pdp.Load(pdp.FS(files))
	if candidate == nil { // such as a forbid that has the obligation of a permit
		a.kinds["an edit that does not load"]++
		return
	}
	base, err := replay.ReadSide(pdp.FS(a.world.Source()))
	if err != nil {
		a.Fatal(err)
	}
	next, err := replay.ReadSide(pdp.FS(files))
	if err != nil {
		a.Fatal(err)
	}
	changed := map[string]replay.Class{}
	got, err := replay.Compare(a.Context(), keptBundle{a.log, a.world.Files()}, base, next, replay.Options{}, func(c *replay.Change) {
		changed[c.Recorded.ID] = c.Class
	})
	if err != nil || len(got.Incomplete) > 0 {
		a.Fatalf("%s: %v, %+v", edit, err, got)
	}
	whole, edited := a.bundle.WithoutIndex(), candidate.WithoutIndex()
	for record, err := range a.log.Records(a.Context(), 0, a.log.Size()) {
		if err != nil {
			a.Fatal(err)
		}
		for _, q := range a.questions(record.Line) {
			is, class := changed[q.ID], a.byHand(whole, edited, q)
			a.values(q, base, next, is)
			if is != class && is != replay.Unknown {
				a.Errorf("%s\nof %s\nit is %q, and %q by hand", edit, q.Line, is, class)
			}
			a.kinds["compared"]++
			a.kinds[string(class)]++
		}
	}
}

// byHand is how an edit changes one recorded answer, "" if it does not or if that depends on what is hidden.
func (a *onRecord) byHand(base, next *pdp.Bundle, q *record.Recorded) replay.Class {
	call, err := recorder.CallOf(q, next, evaluation.DefaultLimits())
	if err != nil {
		return "" // it was no request
	}
	then, err := recorder.CallOf(q, base, evaluation.DefaultLimits())
	if err != nil {
		a.Fatal(err)
	}
	if call.Approved != "" {
		if call.Bound, err = pdp.Of(base, pdp.Options{}).Binding(a.Context(), then); err != nil {
			return ""
		}
	}
	d, err := pdp.Of(next, pdp.Options{}).Evaluate(a.Context(), call)
	if err != nil {
		return ""
	}
	yes := map[string]bool{record.Allow: true, record.Waiting: true, record.Possible: true}
	was, is := q.Answer(), recorder.AnswerOf(d)
	switch {
	case !yes[was] && yes[is]:
		return replay.Widened
	case yes[was] && !yes[is], len(q.Discharged) > 0 && is == record.Waiting:
		return replay.Narrowed
	}
	owed := func(of []string) map[string]bool {
		all := map[string]bool{}
		for _, one := range of {
			all[one] = true
		}
		return all
	}
	var before, after []string
	for _, o := range q.Obligations {
		before = append(before, o.ID+" "+o.Type)
	}
	for _, o := range d.Obligations {
		after = append(after, o.ID+" "+o.Type)
	}
	for one := range owed(before) {
		if yes[was] && !owed(after)[one] {
			return replay.Weaker
		}
	}
	for one := range owed(after) {
		if yes[was] && !owed(before)[one] {
			return replay.Stronger
		}
	}
	if q.Reason != string(d.Reason) || q.ReasonUser != d.ReasonUser && !strings.Contains(q.ReasonUser, evaluation.MaskPrefix) ||
		!slices.Equal(before, after) || !slices.Equal(q.LeftOut, d.LeftOut) {
		return replay.Other
	}
	return ""
}

// values asks both bundles with 200 values at the places that a mask hides in a question, of those with which the base answers as is on
// record. If the candidate has two answers to them, it must be unknown which one counts. If it has one, that is to be found out.
func (a *onRecord) values(q *record.Recorded, base, next *replay.Side, is replay.Class) {
	sent, known := a.sent[q.ID]
	if !known || len(q.Masked) == 0 || q.Unknown != nil || q.Approved || len(q.Discharged) > 0 || len(q.Details) > 0 {
		return
	}
	sent.Approvals = pdp.NotAsked
	was, all := "", map[string]bool{}
	for n := range night.Cases(200) {
		call := sent
		if n > 0 {
			call.Request = a.world.WithSecrets(call.Request, q.Masked)
		}
		before, err := pdp.Of(base.Bundle, pdp.Options{Now: clock}).Evaluate(a.Context(), call)
		if err != nil {
			continue
		}
		if n == 0 {
			was = answerOf(before)
		}
		if answerOf(before) != was {
			continue
		}
		after, err := pdp.Of(next.Bundle, pdp.Options{Now: clock}).Evaluate(a.Context(), call)
		if err == nil {
			all[answerOf(after)] = true
		}
	}
	switch {
	case len(all) > 1 && is != replay.Unknown:
		a.Errorf("%s is %q, and hangs on what is hidden: %v", q.Line, is, all)
	case len(all) > 1:
		a.kinds["two answers"]++
	case len(all) == 1 && is == replay.Unknown:
		a.kinds["one answer, not found out"]++
	case len(all) == 1:
		a.kinds["one answer"]++
	}
}

// answerOf is what of a decision is compared.
func answerOf(d evaluation.Decision) string {
	text := fmt.Sprint(recorder.AnswerOf(d), " ", d.Reason, " ", d.ReasonUser)
	for _, o := range d.Obligations {
		text += " " + o.ID
	}
	return text
}

// questions are those of a record.
func (a *onRecord) questions(line []byte) (all []*record.Recorded) {
	r, err := a.log.Recorded(line)
	if err != nil {
		a.Fatal(err)
	}
	switch {
	case r.Kind != format.KindDecision && r.Kind != format.KindPossible:
		return nil
	case r.Items == nil:
		return []*record.Recorded{&r}
	}
	questions, err := r.ResolvedQuestions()
	if err != nil {
		a.Fatal(err)
	}
	for n := range questions {
		all = append(all, &questions[n])
	}
	return all
}

// keptBundle is a log of one bundle.
type keptBundle struct {
	log   *decisionlog.Log
	files map[string][]byte
}

func (k keptBundle) Records(ctx context.Context) iter.Seq2[replay.Record, error] {
	return func(yield func(replay.Record, error) bool) {
		for r, err := range k.log.Records(ctx, 0, k.log.Size()) {
			if !yield(replay.Record{Record: r}, err) {
				return
			}
		}
	}
}

func (k keptBundle) Bundle(string) (map[string][]byte, error) { return k.files, nil }

func (a *onRecord) single(call pdp.Call) evaluation.Decision {
	d, err := a.first.Evaluate(a.Context(), call)
	if err != nil {
		return d // it is not on record
	}
	a.sent[d.ID] = call
	return d
}

// batch asks the same three times, with parts that all items inherit.
func (a *onRecord) batch(call pdp.Call) {
	body, err := call.Request.MarshalJSON()
	if err != nil {
		a.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(body, &members); err != nil {
		a.Fatal(err)
	}
	members["evaluations"] = []any{map[string]any{}, map[string]any{"action": map[string]any{"name": "read"}}, map[string]any{"context": map[string]any{"s": "a", "n": 1.5}}}
	body, err = json.Marshal(members)
	if err != nil {
		a.Fatal(err)
	}
	batch, err := evaluation.DecodeBatch(body, call.Request.Tenant, evaluation.DefaultLimits())
	if err != nil {
		a.Fatal(err)
	}
	all, err := a.first.EvaluateBatch(a.Context(), pdp.BatchCall{Batch: batch, Asker: call.Asker})
	if err != nil {
		a.Fatal(err)
	}
	for n, d := range all.Items {
		one := call
		one.Request = batch.Items[n].Request
		if a.sent[d.ID] = one; d.Malformed == nil {
			a.kinds["item"]++
		}
	}
}

// approved asks, has what is asked for approved, and asks again with the approval. The use may be spent by
// then.
func (a *onRecord) approved(call pdp.Call, native bool) {
	call.Approvals = pdp.SpendOrOffer
	if native {
		call = call.Native()
		call.Approvals = pdp.SpendOrFile
	}
	filed := len(a.desk.filed)
	a.single(call)
	if asks, ok, err := a.first.Requestable(a.Context(), call); err == nil && ok {
		a.desk.approved[string(asks.Binding)] = 1
	} else if len(a.desk.filed) > filed {
		a.desk.approved[a.desk.filed[filed]] = 1
	}
	approval, err := evaluation.Text("one")
	if err != nil {
		a.Fatal(err)
	}
	before := call.Request.Context
	call.Request.Context = before.With("approval_id", approval)
	by := a.single(call) // by the approval
	a.single(call)       // after it was spent
	for n := range 3 {   // two rounds, and one of them twice
		presents, err := evaluation.NewObject(map[string]any{"id": "one", "continues": map[string]any{"decision": by.ID, "round": max(1, n)}})
		if err != nil {
			a.Fatal(err)
		}
		call.Request.Context = before.With("approval", presents.Value())
		a.single(call)
	}
}

// check makes the decision of a record again, and says what came of it.
func (a *onRecord) check(id string) string {
	rec, err := a.log.Find(id)
	if err != nil {
		a.Fatal(err)
	}
	var shown segment.Shown
	if shown.Record, err = a.log.Recorded(rec.Line); err == nil {
		err = shown.SelectQuestion(id)
	}
	if err != nil {
		a.Fatal(err)
	}
	was := shown.Record
	call, err := recorder.CallOf(&was, a.bundle, evaluation.DefaultLimits())
	malformed := len(was.Details) > 0
	if err != nil {
		if !malformed {
			a.Errorf("%s: %v", was.Line, err)
		}
		return "malformed"
	}
	for kind, is := range map[string]bool{
		"registered": was.Declared != nil, "native": was.Shape == "native", "masked": len(call.Hidden) > 0,
		"approved allow": was.Approved && *was.Decision, "approved deny": was.Approved && !*was.Decision,
		"possible": was.Answer() == record.Possible, "impossible": was.Answer() == record.Impossible, "possible, and masked": was.Unknown != nil && len(call.Hidden) > 0,
		"continued": call.Continued.Round > 0, "continued, and masked": call.Continued.Round > 0 && call.Request.Continues().Round == 0,
	} {
		if is {
			a.kinds[kind]++
		}
	}
	again := pdp.Of(a.bundle, pdp.Options{Recorder: &a.record, NewID: func() string { return id }})
	d, err := again.Evaluate(a.Context(), call)
	var unknown *pdp.Unknown
	var bad *evaluation.Error
	switch {
	case malformed:
		if !errors.As(err, &bad) {
			a.Errorf("%s: made again it is %+v, %v", was.Line, d, err)
		}
		return "malformed"
	case errors.As(err, &unknown):
		a.checkHangs(call, unknown)
		if was.Unknown != nil {
			return "possible, and hangs"
		}
		return "unknown"
	case err != nil:
		a.Errorf("%s: %v", was.Line, err)
		return "failed"
	}
	made, err := a.again.ByID(id)
	if err != nil {
		a.Fatal(err)
	}
	want, got := membersOf(a.T, was.Line), membersOf(a.T, made.Line)
	if shown.OfBatch {
		want = questionIn(a.T, want, id)
		a.kinds["question of a batch"]++
	}
	outcome := "same"
	if len(call.Hidden) > 0 {
		outcome = "same answer"
		for _, name := range []string{"determining", "overruled", "errors", "mismatch", "request", "masked", "approved"} {
			delete(want, name)
			delete(got, name)
		}
		for _, members := range []map[string]any{want, got} {
			withoutProperties(members)
		}
		if slices.ContainsFunc(call.Hidden, func(h evaluation.Hidden) bool {
			return h.At == "/context" || strings.HasPrefix(h.At, "/context/supported_mandatory_extensions")
		}) {
			delete(want, "adopted")
			delete(got, "adopted")
		}
		for _, id := range slices.Concat(d.Determining, d.Overruled) {
			if !slices.Contains(was.Determining, id) && !slices.Contains(was.Overruled, id) {
				a.Errorf("%s: made again, %s determines", was.Line, id)
			}
		}
	}
	if len(was.Inherits) > 0 || bytesHave(id, '.') { // the record of an item is not that of one request
		for _, name := range []string{"request", "inherits", "mismatch", "masked"} {
			delete(want, name)
			delete(got, name)
		}
	}
	if !reflect.DeepEqual(want, got) {
		a.Errorf("the record\n%s\nmade again\n%s\nhidden %+v", was.Line, made.Line, call.Hidden)
	}
	return outcome
}

// checkHangs checks that what an answer hangs on is hidden.
func (a *onRecord) checkHangs(call pdp.Call, u *pdp.Unknown) {
	for _, at := range u.Paths {
		if !slices.ContainsFunc(call.Hidden, func(h evaluation.Hidden) bool { return h.At == at }) {
			a.Errorf("%s is not hidden: %v", at, call.Hidden)
		}
	}
}

func bytesHave(id string, c byte) bool { return slices.Contains([]byte(id), c) }

// questionIn are the members that a record of its own would have of a question of a batch, but for what it inherits.
func questionIn(t *testing.T, batch map[string]any, id string) map[string]any {
	t.Helper()
	for _, item := range batch["items"].([]any) {
		item := item.(map[string]any)
		if fmt.Sprintf("%s.%v", batch["id"], item["n"]) != id {
			continue
		}
		one := maps.Clone(batch)
		delete(one, "masked")
		delete(one, "items")
		maps.Copy(one, item)
		one["id"] = id
		delete(one, "n")
		return one
	}
	t.Fatalf("%v has no question %s", batch, id)
	return nil
}

// membersOf are the members of a line that the decision fixes.
func membersOf(t *testing.T, line []byte) map[string]any {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(line, &members); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(members, func(name string, _ any) bool {
		return slices.Contains([]string{"sequence", "time", "clock_behind", "salt"}, name)
	})
	return members
}

// withoutProperties takes out what is filled into obligations.
func withoutProperties(members map[string]any) {
	all, _ := members["obligations"].([]any)
	for _, o := range all {
		delete(o.(map[string]any), "properties")
	}
}
