package server_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// version is a bundle whose two policies, in two files, name it: an answer made
// of two versions is seen by its ids.
type version struct {
	n   int
	bad bool
}

func (v version) files() map[string]string {
	b := fmt.Sprintf("@id(\"b-%d\") permit(principal is user, action, resource);\n", v.n)
	if v.bad {
		b = "permit(principal is user, action, resource); forbid("
	}
	return map[string]string{
		"a.cedar":            fmt.Sprintf("@id(\"a-%d\") permit(principal is user, action, resource) when { context.pdp.tenant == \"default\" };\n", v.n),
		"b.cedar":            b + "// " + strings.Repeat("padding ", 50) + "\n",
		"entities/docs.json": docs,
	}
}

// docs are the same in every version.
var docs = func() string {
	var b strings.Builder
	for n := range 50 {
		fmt.Fprintf(&b, `,{"uid":{"type":"doc","id":"d%02d"},"attrs":{},"parents":[]}`, n)
	}
	return "[" + b.String()[1:] + "]\n"
}()

func (v version) manifest() string {
	var b strings.Builder
	for _, name := range []string{"a.cedar", "b.cedar", "entities/docs.json"} {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256([]byte(v.files()[name])), name)
	}
	return b.String() + "# end\n"
}

// versions are what a directory goes through: one in five does not load, the
// last one does.
func versions(seed uint64) []version {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]version, night.Cases(200))
	for i := range all {
		all[i] = version{n: i, bad: i > 0 && i < len(all)-1 && random.IntN(5) == 0}
	}
	return all
}

// Clients ask without a pause while the bundle is rewritten under them: every
// answer is what one complete bundle says, and none fails.
func TestReloadUnderLoad(t *testing.T) {
	t.Run("by rename", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		link := filepath.Join(root, "current")
		put := func(v version) {
			dir := filepath.Join(root, fmt.Sprintf("v%d", v.n))
			writeAll(t, dir, v.files())
			next := filepath.Join(root, "next")
			must(t, os.Symlink(dir, next))
			must(t, os.Rename(next, link))
		}
		reloadUnderLoad(t, link, versions(1), put)
	})
	t.Run("cut at random bytes, with a MANIFEST", func(t *testing.T) {
		t.Parallel()
		dir, random := filepath.Join(t.TempDir(), "bundle"), rand.New(rand.NewPCG(2, 2))
		put := func(v version) {
			files := v.files()
			files["MANIFEST"] = v.manifest()
			must(t, os.MkdirAll(filepath.Join(dir, "entities"), 0o755))
			for name, text := range files {
				writeInPieces(t, filepath.Join(dir, name), text, random)
			}
		}
		reloadUnderLoad(t, dir, versions(2), put)
	})
}

func reloadUnderLoad(t *testing.T, dir string, all []version, put func(version)) {
	put(all[0])
	outcomes := make(chan pdp.Status, 16*len(all))
	s := pdptest.Start(t, pdp.Dir(dir), func(c *server.Config) {
		c.Program.PDP.Quiet = time.Millisecond
		c.Program.PDP.OnLoad = func(status pdp.Status) { outcomes <- status }
	})
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() { askUntil(t, s, done) })
	}
	clients.Go(func() { batchUntil(t, s, done) })
	clients.Go(func() { pageUntil(t, s, done) })
	for _, v := range all[1:] {
		put(v)
		if v.n%2 == 0 { // every other one is waited for; the rest may be overtaken
			awaitOutcome(t, s, outcomes, v)
		}
	}
	awaitOutcome(t, s, outcomes, all[len(all)-1])
	close(done)
	clients.Wait()
}

// awaitOutcome waits until a version is in force, or refused where it is bad.
func awaitOutcome(t *testing.T, s *pdptest.Server, outcomes <-chan pdp.Status, v version) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case status := <-outcomes:
			if v.bad && status.Refused != nil {
				return
			}
			if ids := determining(t, s); !v.bad && len(ids) == 2 && ids[0] == fmt.Sprintf("a-%d", v.n) {
				return
			}
		case <-deadline:
			t.Fatalf("version %+v did not come in force", v)
		}
	}
}

func askUntil(t *testing.T, s *pdptest.Server, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		ids := determining(t, s)
		if len(ids) != 2 || strings.TrimPrefix(ids[0], "a-") != strings.TrimPrefix(ids[1], "b-") {
			t.Errorf("no one bundle answers by %v", ids)
			return
		}
	}
}

// batchUntil sends batches, each of which one bundle must answer.
func batchUntil(t *testing.T, s *pdptest.Server, done <-chan struct{}) {
	items := strings.Repeat(`,{"resource":{"type":"doc","id":"d01"}}`, 30)[1:]
	body := strings.TrimSuffix(reloadQuestion, "}") + `,"evaluations":[` + items + `]}`
	for {
		select {
		case <-done:
			return
		default:
		}
		answer := s.Post("/access/v1/evaluations", body, "X-Explain", "true")
		var got struct{ Evaluations []json.RawMessage }
		if err := json.Unmarshal([]byte(answer.Body), &got); err != nil || answer.Status != 200 || len(got.Evaluations) != 30 {
			t.Errorf("status %d, %.200s", answer.Status, answer.Body)
			return
		}
		for _, e := range got.Evaluations {
			if string(e) != string(got.Evaluations[0]) {
				t.Errorf("one batch, two bundles:\n%s\n%s", got.Evaluations[0], e)
				return
			}
		}
	}
}

// pageUntil walks through pages, none of which a reload may break.
func pageUntil(t *testing.T, s *pdptest.Server, done <-chan struct{}) {
	const query = `{"subject":{"type":"user","id":"u"},"action":{"name":"x"},"resource":{"type":"doc"},"page":{`
	for {
		select {
		case <-done:
			return
		default:
		}
		found, next := 0, `"limit":7`
		for next != "" {
			p, status := search(t, s, resources, query+next+`}}`)
			if status != 200 || p.Page == nil {
				t.Errorf("a page got status %d", status)
				return
			}
			found += len(p.Results)
			if next = ""; *p.Page.Token != "" {
				next = fmt.Sprintf(`"token":%q`, *p.Page.Token)
			}
		}
		if found != 50 {
			t.Errorf("the pages held %d documents of 50", found)
			return
		}
	}
}

const reloadQuestion = `{"subject":{"type":"user","id":"u"},"action":{"name":"x"},"resource":{"type":"doc","id":"1"}}`

// determining asks over HTTP and returns the satisfied policies of an allow.
func determining(t *testing.T, s *pdptest.Server) []string {
	answer := s.Post("/access/v1/evaluation", reloadQuestion, "X-Explain", "true")
	var body struct {
		Decision bool
		Context  struct {
			Explain struct {
				Policies []struct{ ID, Verdict string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer.Body), &body); err != nil || answer.Status != 200 || !body.Decision {
		t.Errorf("status %d, %s", answer.Status, answer.Body)
		return nil
	}
	var ids []string
	for _, p := range body.Context.Explain.Policies {
		if p.Verdict == "satisfied" {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func writeAll(t *testing.T, dir string, files map[string]string) {
	for name, text := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// writeInPieces writes a file as a careless deployment does: truncated first,
// then piece by piece, visible to a reader at every cut.
func writeInPieces(t *testing.T, name, text string, random *rand.Rand) {
	f, err := os.Create(name)
	must(t, err)
	for len(text) > 0 {
		n := 1 + random.IntN(len(text))
		_, err := f.WriteString(text[:n])
		must(t, err)
		text = text[n:]
	}
	must(t, f.Close())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replied wants an answer with a status, which says all of that.
func replied(t *testing.T, got pdptest.Response, status int, says ...string) {
	t.Helper()
	if got.Status != status || slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(got.Body, text) }) {
		t.Errorf("got %d %.1000s, want %d %q", got.Status, got.Body, status, says)
	}
}

// An edit of a file is in force without another word, with the quiet period a server has by default.
func TestEditIsVisible(t *testing.T) {
	t.Parallel()
	small := t.TempDir()
	must(t, os.CopyFS(small, os.DirFS("../../../policies/starter")))
	edit(t, small)
}

// An edit is in force within a second; for a large bundle the time is printed.
func TestEditIsSoonVisible(t *testing.T) {
	night.Measures(t)
	best := time.Hour
	for range 20 { // the machine may have something else to do at some moments, and not at all of them
		small := t.TempDir()
		must(t, os.CopyFS(small, os.DirFS("../../../policies/starter")))
		if best = min(best, edit(t, small)); best <= time.Second {
			break
		}
	}
	if best > time.Second {
		t.Errorf("no edit of the starter bundle was in force sooner than after %s, want at most 1 s", best)
	}
	t.Logf("starter bundle: in force after %s", best)
	t.Logf("10,000 policies and 100,000 entities: in force after %s", edit(t, largeBundle(t)))
}

func edit(t *testing.T, dir string) time.Duration {
	changed := make(chan pdp.Status, 16)
	pdptest.Start(t, pdp.Dir(dir), func(c *server.Config) {
		c.Program.PDP.Quiet = 0 // the default
		c.Program.PDP.OnLoad = func(s pdp.Status) { changed <- s }
	})
	begin := time.Now()
	must(t, os.WriteFile(filepath.Join(dir, "edit.cedar"), []byte("forbid(principal, action == Action::\"tool.invoke\", resource) when { false };\n"), 0o644))
	select {
	case s := <-changed:
		if s.Refused != nil {
			t.Fatal(s.Refused.Problems)
		}
	case <-time.After(patience):
		t.Fatal("the edit was not noticed")
	}
	return time.Since(begin)
}

func largeBundle(t *testing.T) string {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "entities"), 0o755))
	for file := range 10 {
		var b strings.Builder
		for n := range 1000 {
			fmt.Fprintf(&b, "permit(principal == user::\"u%d-%d\", action == Action::\"a%d\", resource);\n", file, n, n%20)
		}
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("p%d.cedar", file)), []byte(b.String()), 0o644))
	}
	var b strings.Builder
	for n := range 100_000 {
		fmt.Fprintf(&b, ",\n{\"uid\":{\"type\":\"user\",\"id\":\"e%d\"},\"attrs\":{\"n\":%d},\"parents\":[{\"type\":\"group\",\"id\":\"g%d\"}]}", n, n, n%100)
	}
	must(t, os.WriteFile(filepath.Join(dir, "entities", "e.json"), []byte("["+b.String()[1:]+"]"), 0o644))
	return dir
}
