package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/replay"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// archive is a directory with a decision log, and a PDP that writes it.
type archive struct {
	t       *testing.T
	dir     string
	log     *decisionlog.Log
	bundles *segment.Bundles
	*pdp.PDP
	record recorder.Recorder
	ids    int
	now    time.Time
	// flip is asked of each record before it is written.
	flip func(*pdp.Record)
}

// Record implements [pdp.Recorder].
func (a *archive) Record(ctx context.Context, all []pdp.Record) error {
	for n := range all {
		if a.flip != nil {
			a.flip(&all[n])
		}
	}
	return a.record.Record(ctx, all)
}

func open(t *testing.T) *archive {
	a := &archive{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
	var err error
	a.log, err = decisionlog.Open(a.dir, decisionlog.Options{Kinds: []string{format.KindApproval}})
	must(t, err)
	t.Cleanup(func() { _ = a.log.Close() })
	a.bundles, err = segment.OpenBundles(a.dir)
	must(t, err)
	masker, err := mask.New(make([]byte, mask.KeySize), []string{"/context/arguments/token"})
	must(t, err)
	a.record = recorder.Recorder{
		Log: a.log, Mask: func(context.Context) *mask.Masker { return masker },
		GoOn: func(context.Context) error { return nil }, Waits: func(context.Context) {},
	}
	return a
}

// load has another bundle decide, and keeps its files unless it is not to.
func (a *archive) load(files map[string]string, kept bool) {
	a.t.Helper()
	all, fsys := map[string][]byte{}, fstest.MapFS{}
	for name, text := range files {
		all[name], fsys[name] = []byte(text), &fstest.MapFile{Data: []byte(text)}
	}
	b, problems := pdp.Load(pdp.FS(fsys))
	if b == nil {
		a.t.Fatal(problems)
	}
	if kept {
		_, err := a.bundles.Put(all)
		must(a.t, err)
	}
	a.PDP = pdp.Of(b, pdp.Options{
		Recorder: a, Now: func() time.Time { a.now = a.now.Add(time.Second); return a.now },
		NewID: func() string { a.ids++; return fmt.Sprintf("d%04d", a.ids) },
	})
}

// asks puts a question in a tenant.
func (a *archive) asks(tenant, body string) {
	a.t.Helper()
	q, err := evaluation.DecodeAuthZEN([]byte(body), tenant, evaluation.DefaultLimits())
	must(a.t, err)
	a.call(q, evaluation.Asker{Name: "key:pep"})
}

func (a *archive) call(q evaluation.Request, by evaluation.Asker) {
	a.t.Helper()
	_, err := a.Evaluate(a.t.Context(), pdp.Call{Request: q, Asker: by})
	must(a.t, err)
}

// asksNatively puts a question in the other shape.
func (a *archive) asksNatively(body string) {
	a.t.Helper()
	q, err := evaluation.DecodeNative([]byte(body), evaluation.DefaultLimits())
	must(a.t, err)
	a.call(q, evaluation.Asker{Name: "key:gateway", Registered: true, Obligations: []string{"notification"}})
}

func (a *archive) batch(tenant, body string) {
	a.t.Helper()
	q, err := evaluation.DecodeBatch([]byte(body), tenant, evaluation.DefaultLimits())
	must(a.t, err)
	_, err = a.EvaluateBatch(a.t.Context(), pdp.BatchCall{Batch: q, Asker: evaluation.Asker{Name: "key:pep"}})
	must(a.t, err)
}

// policies are three bundles, and each decides some of the same questions otherwise than the one before.
func policies(n int) map[string]string {
	return map[string]string{
		"a.cedar": fmt.Sprintf(`@id("read") permit(principal, action == Action::"read", resource) when { context.level > %d };
@id("tell") @obligation("tell") permit(principal, action == Action::"write", resource);
@id("token") permit(principal, action == Action::"login", resource) when { context.arguments.token == "a" };
@id("off") forbid(principal, action, resource) when { resource.id == "closed" };`, n),
		"obligations.yaml":     `tell: {type: notification, on: allow, properties: {to: "${principal.id}", body: "wrote"}}`,
		"entities/docs.json":   `[{"uid":{"type":"doc","id":"closed"},"attrs":{"id":"closed"},"parents":[]},{"uid":{"type":"doc","id":"open"},"attrs":{"id":"open"},"parents":[]}]`,
		"tenants/acme/b.cedar": `@id("acme") permit(principal, action == Action::"list", resource);`,
	}
}

// fill has questions of all kinds on record: both tenants, batches, masks, and what is possible.
func (a *archive) fill(n int) {
	for _, tenant := range []string{"default", "acme"} {
		for level := range 3 {
			a.asks(tenant, fmt.Sprintf(`{"subject":{"type":"user","id":"u%d"},"action":{"name":"read"},"resource":{"type":"doc","id":"open"},"context":{"level":%d}}`, n, level))
		}
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"write"},"resource":{"type":"doc","id":"open"},"context":{"supported_obligations":["notification"]}}`)
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"write"},"resource":{"type":"doc","id":"open"}}`)
		a.asksNatively(fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":"mia","actor_type":"user"},"action":"write","resource":{"type":"doc","id":"open"},"context":{"n":%d}}`, tenant, n))
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"login"},"resource":{"type":"doc","id":"open"},"context":{"arguments":{"token":"a"}}}`)
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"resource":{"type":"doc","id":"open"},"context":{"level":9,"arguments":{"token":"a"}}}`)
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"list"},"resource":{"type":"doc","id":"closed"}}`)
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"resource":{"type":"doc","id":"open"},"options":{"unknown":["/context/level"]}}`)
		a.batch(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"context":{"level":2},"evaluations":[{"resource":{"type":"doc","id":"open","properties":{"kind":"batch"}}},{"resource":{"type":"doc","id":"closed"}},{"resource":{"type":"doc","id":"open"},"context":{"level":0}}]}`)
		a.batch(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"options":{"unknown":["/context/level"]},"evaluations":[{"resource":{"type":"doc","id":"open"}},{"resource":{"type":"doc","id":"closed"}}]}`)
	}
}

// sources are the log of the directory, and an export of it with its bundles.
func (a *archive) sources(ask func(name string, from func() replay.Source)) {
	a.t.Helper()
	must(a.t, a.log.Close())
	before := a.listing()
	defer func() {
		if after := a.listing(); after != before {
			a.t.Errorf("the directory was\n%s\nand is\n%s", before, after)
		}
	}()
	must(a.t, segment.Read(a.dir, func(s *segment.Snapshot) error {
		var file bytes.Buffer
		_, err := export.Log{Snapshot: s}.Export(a.t.Context(), &file, export.Options{Bundles: true})
		must(a.t, err)
		if got := verify.Export(bytes.NewReader(file.Bytes()), verify.Options{}); !got.Verified() {
			a.t.Errorf("the export does not verify: %+v", got.Problem)
		}
		ask("the directory", func() replay.Source { return replay.OfLog(s) })
		ask("the export", func() replay.Source {
			r, err := export.NewReader(bytes.NewReader(file.Bytes()))
			must(a.t, err)
			of, err := replay.OfExport(r, nil)
			must(a.t, err)
			return of
		})
		return nil
	}))
}

// listing names all files of the directory, with their sizes and times.
func (a *archive) listing() (list string) {
	a.t.Helper()
	must(a.t, filepath.WalkDir(a.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			list += fmt.Sprintln(path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	}))
	return list
}

func textOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v, json.Deterministic(true))
	must(t, err)
	return string(text)
}

// recheck rechecks both sources with one worker and with several. All reports are the same.
func (a *archive) recheck() (got replay.Rechecked) {
	a.t.Helper()
	first := ""
	a.sources(func(name string, from func() replay.Source) {
		for _, workers := range []int{1, 4} {
			made, err := replay.Recheck(a.t.Context(), from(), replay.Options{Workers: workers})
			must(a.t, err)
			if text := textOf(a.t, made); first == "" {
				first, got = text, made
			} else if text != first {
				a.t.Errorf("%s by %d workers:\n%s\nand not\n%s", name, workers, text, first)
			}
		}
	})
	return got
}

// Nothing differs in a log of all kinds of questions and several bundles, and nothing is left out.
func TestRecheck(t *testing.T) {
	t.Parallel()
	a := open(t)
	for n := range 3 {
		a.load(policies(n), true)
		a.fill(n)
	}
	got := a.recheck()
	if got.Different != 0 || len(got.Incomplete) > 0 || got.Decisions != 3*2*15 || got.Same+got.Hidden != got.Decisions {
		t.Errorf("got %+v", got)
	}
	// What was denied or allowed by the token alone is not known, and which place that is.
	if got.Hidden != 3*2 || len(got.HiddenBy) != 1 || got.HiddenBy[0].Path != "/context/arguments/token" || !slices.Equal(got.HiddenBy[0].Policies, []string{"token"}) {
		t.Errorf("got %+v", got.HiddenBy)
	}
}

// The log verifies, since the service wrote it, and seven answers are not those of the policies. These are found, and no others.
func TestRecheckFindsOtherAnswers(t *testing.T) {
	t.Parallel()
	a := open(t)
	want, n := map[string]string{}, 0
	a.flip = func(r *pdp.Record) {
		if n++; n%11 != 0 || len(want) == 7 || r.Call.Request.Action.Name == "login" || r.Decision.Malformed != nil || r.Call.Request.Context.Len() > 0 && n%2 == 0 && r.Decision.Possible != evaluation.Decided {
			return
		}
		d := &r.Decision
		switch {
		case d.Possible == evaluation.Possible:
			d.Possible = evaluation.Impossible
		case d.Possible == evaluation.Impossible:
			d.Possible = evaluation.Possible
		case len(want)%3 == 0 && len(d.Obligations) > 0:
			d.Obligations = nil
			want[r.ID] = "obligations"
			return
		default:
			d.Allow = !d.Allow
		}
		want[r.ID] = "answer"
	}
	for n := range 3 {
		a.load(policies(n), true)
		a.fill(n)
	}
	got := a.recheck()
	found := map[string]string{}
	for _, one := range got.Differences {
		found[one.ID] = one.Part
	}
	if len(want) != 7 || !maps.Equal(found, want) || got.Different != 7 {
		t.Errorf("found %v, and not %v", found, want)
	}
}

// A record that cannot be judged is named: its bundle is not kept, or does not load today, or its content is gone.
func TestRecheckNamesWhatItCannotJudge(t *testing.T) {
	t.Parallel()
	a := open(t)
	a.load(policies(0), false)
	a.fill(0)
	a.load(policies(1), true)
	a.asks("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"list"},"resource":{"type":"doc","id":"open"}}`)
	gone := fmt.Sprintf("d%04d", a.ids)
	a.asks("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"list"},"resource":{"type":"doc","id":"open"}}`)
	must(t, a.log.Close())
	must(t, decisionlog.Redact(t.Context(), a.dir, gone, "test", decisionlog.Options{}))
	got := a.recheck()
	if got.Incomplete[replay.LacksBundle] != 2*15 || got.Incomplete[replay.LacksContent] != 1 || got.Same != 1 || len(got.Examples[replay.LacksBundle]) != 3 {
		t.Errorf("got %+v", got)
	}
}
