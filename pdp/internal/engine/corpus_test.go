package engine_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	exptypes "github.com/cedar-policy/cedar-go/x/exp/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// Cedar's own corpus stands inside the cedar-go module: policies, entities and requests, with the decision, reasons and
// errors of the reference implementation. It is read from where the go command keeps that module; nothing is copied.

// corpusTally counts what went through. The totals are those of cedar-go v1.9.2's corpus, exactly: an archive that
// shrank, or a reader that skips, is a failure and not a faster test.
type corpusTally struct {
	files, requests  int
	allows, errored  int // expected allows, and requests in which some policy is expected to err
	whole, escaped   int // through the whole of Evaluate, or refused for __entity and __extn
	wholeAllows      int
	unknown          int // requests whose types our contract refuses
	namespaced       int
	stored, unstored int // principals and resources that the entities hold, and those they do not
	miscalled        int // files with a call of a wrong number of arguments, which we refuse and Cedar reads
}

var wholeCorpus = corpusTally{
	files: 7682, requests: 61_456,
	allows: 36_968, errored: 3372,
	whole: 57_837, escaped: 3619,
	wholeAllows: 34_441,
	unknown:     0, // every type of the corpus is one that a request may name
	namespaced:  8286,
	stored:      241_854, unstored: 3970,
	miscalled: 68,
}

// shortCorpus are those of every fifth file.
var shortCorpus = corpusTally{
	files: 1531, requests: 12_248,
	allows: 7674, errored: 720,
	whole: 11_538, escaped: 710,
	wholeAllows: 7144,
	namespaced:  1718,
	stored:      48_234, unstored: 758,
	miscalled: 19,
}

// TestCorpus takes some 3 s at night: it loads 7,682 bundles, and decides 61,456 requests in three ways each. The gate has every fifth
// file.
func TestCorpus(t *testing.T) {
	t.Parallel()
	archive := readCorpus(t)
	var names []string
	for name := range archive {
		if strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".entities.json") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	want := wholeCorpus
	if testing.Short() {
		var some []string
		for n := 0; n < len(names); n += 5 {
			some = append(some, names[n])
		}
		names, want = some, shortCorpus
	}
	const size = 500
	var tallies []*corpusTally
	t.Run("files", func(t *testing.T) { // returns when its parallel parts have
		for chunk := range slices.Chunk(names, size) {
			tally := new(corpusTally)
			tallies = append(tallies, tally)
			t.Run(fmt.Sprintf("from-%d", (len(tallies)-1)*size), func(t *testing.T) {
				t.Parallel()
				for _, name := range chunk {
					if c := openCorpus(t, archive, name); c == nil {
						tally.miscalled++
					} else {
						c.tally = tally
						c.run(t)
					}
				}
			})
		}
	})
	var sum corpusTally
	for _, tally := range tallies {
		sum.add(tally)
	}
	if sum != want {
		t.Errorf("what went through:\n%+v\nand what should have:\n%+v", sum, want)
	}
}

func (c *corpusTally) add(o *corpusTally) {
	c.files += o.files
	c.requests += o.requests
	c.allows += o.allows
	c.errored += o.errored
	c.whole += o.whole
	c.escaped += o.escaped
	c.wholeAllows += o.wholeAllows
	c.unknown += o.unknown
	c.namespaced += o.namespaced
	c.stored += o.stored
	c.unstored += o.unstored
	c.miscalled += o.miscalled
}

// corpusFile is one file of the corpus, and what we make of it.
type corpusFile struct {
	Policies string          `json:"policies"`
	Entities string          `json:"entities"`
	Schema   string          `json:"schema"`
	Requests []corpusRequest `json:"requests"`

	name      string
	namespace string
	bundle    *pdp.Bundle
	indexed   *bundle.View // with the index, and
	plain     *bundle.View // without
	pdp       *pdp.PDP
	tally     *corpusTally
}

type corpusRequest struct {
	Principal corpusUID        `json:"principal"`
	Action    corpusUID        `json:"action"`
	Resource  corpusUID        `json:"resource"`
	Context   jsontext.Value   `json:"context"`
	Decision  cedar.Decision   `json:"decision"`
	Reasons   []cedar.PolicyID `json:"reason"`
	Errors    []cedar.PolicyID `json:"errors"`
}

type corpusUID struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func (u corpusUID) uid() types.EntityUID {
	return cedar.NewEntityUID(types.EntityType(u.Type), types.String(u.ID))
}

func readCorpus(t *testing.T) map[string][]byte {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cedar-policy/cedar-go")
	dir, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "corpus-tests.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string][]byte{}
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if content[h.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// openCorpus makes a bundle of one file's policies and entities. The entities need their schema to be read, because
// some write extension values and references plainly; read, they are written again with nothing left to guess, and go
// through our loader in that form. The bundle itself has no schema: most of the policies fit none. It is nil if a call has a
// wrong number of arguments.
func openCorpus(t *testing.T, archive map[string][]byte, name string) *corpusFile {
	t.Helper()
	c := &corpusFile{name: name}
	if err := json.Unmarshal(archive[name], c); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c.namespace, _ = cutLast(c.Requests[0].Action.Type)
	settings := "allow_trivial: true\nforbid_errors: ignore\n"
	if c.namespace != "" {
		settings += "namespace: " + c.namespace + "\n"
	}
	bundle, problems := pdp.Load(pdp.FS(fstest.MapFS{
		"bundle.yaml":       {Data: []byte(settings)},
		"policies.cedar":    {Data: archive[c.Policies]},
		"entities/all.json": {Data: c.entities(t, archive)},
	}))
	for _, p := range problems.Only(pdp.SeverityError) {
		if p.Code != "policy_call" {
			t.Fatalf("%s does not load:\n%v", name, p)
		}
	}
	if problems.Refuse() {
		return nil
	}
	c.bundle, c.indexed, c.pdp = bundle, bundle.Views[evaluation.DefaultTenant], pdp.Of(bundle, pdp.Options{})
	plain := *c.indexed
	plain.Index = nil
	c.plain = &plain
	return c
}

func (c *corpusFile) entities(t *testing.T, archive map[string][]byte) []byte {
	t.Helper()
	var s schema.Schema
	if err := s.UnmarshalCedar(archive[c.Schema]); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	var typed exptypes.EntityMap
	if err := typed.UnmarshalJSONWithSchema(archive[c.Entities], resolved); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	text, err := types.EntityMap(typed).MarshalJSON()
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return text
}

func (c *corpusFile) run(t *testing.T) {
	c.tally.files++
	for i := range c.Requests {
		r := &c.Requests[i]
		c.tally.requests++
		c.tally.allows += count(bool(r.Decision))
		c.tally.errored += count(len(r.Errors) > 0)
		where := fmt.Sprintf("%s request %d", c.name, i)
		c.authorize(t, where+", index on", c.indexed, r)
		c.authorize(t, where+", index off", c.plain, r)
		c.evaluate(t, where+", whole", r)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// authorize puts the corpus' own values to the authorize stage.
func (c *corpusFile) authorize(t *testing.T, where string, v *bundle.View, r *corpusRequest) {
	t.Helper()
	var context types.Record
	if err := json.Unmarshal(r.Context, &context); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	q := &engine.Question{Uids: [bundle.Variables]types.EntityUID{r.Principal.uid(), r.Action.uid(), r.Resource.uid()}, Context: context}
	q.Entities = &engine.Overlay{Store: v.Store, Principal: c.stored(v, r.Principal), Resource: c.stored(v, r.Resource)}
	new(engine.Inquiry).Lineages(q)
	var d evaluation.Decision
	_ = engine.Authorize(t.Context(), c.bundle, v, q, &d)
	check(t, where, r, d)
}

func (c *corpusFile) stored(v *bundle.View, u corpusUID) types.Entity {
	e, ok := v.Store.Get(u.uid())
	e.UID = u.uid()
	c.tally.stored += count(ok)
	c.tally.unstored += count(!ok)
	return e
}

// evaluate goes the whole way, from a body to a decision.
func (c *corpusFile) evaluate(t *testing.T, where string, r *corpusRequest) {
	t.Helper()
	const most = 1 << 30
	limits := evaluation.Limits{Body: most, Depth: most, Values: most}
	request, err := evaluation.DecodeAuthZEN(c.body(t, where, r), "", limits)
	if escapes(r.Context) {
		c.tally.escaped++
		var refused *evaluation.Error
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Pointer, "/context/") || !escaped(refused.Pointer) {
			t.Errorf("%s is to be refused for a reference in its context, and was not: %v", where, err)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	c.tally.whole++
	c.tally.namespaced += count(c.namespace != "")
	d, err := c.pdp.Evaluate(t.Context(), pdp.Call{Request: request, Now: time.Unix(0, 0)})
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if d.Reason == evaluation.UnknownType {
		c.tally.unknown++
		return
	}
	c.tally.wholeAllows += count(d.Allow)
	check(t, where, r, d)
}

// body is the request as AuthZEN sends it. The namespace of action and types is the bundle's to add.
func (c *corpusFile) body(t *testing.T, where string, r *corpusRequest) []byte {
	t.Helper()
	if r.Action.Type != c.qualified("Action") {
		t.Fatalf("%s: the action is a %s", where, r.Action.Type)
	}
	entity := func(u corpusUID) corpusUID {
		name, ok := strings.CutPrefix(u.Type, c.qualified(""))
		if !ok {
			t.Fatalf("%s: %s is not in the namespace of the action", where, u.Type)
		}
		return corpusUID{name, u.ID}
	}
	body, err := json.Marshal(map[string]any{
		"subject": entity(r.Principal), "action": map[string]string{"name": r.Action.ID}, "resource": entity(r.Resource), "context": r.Context,
	})
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	return body
}

func (c *corpusFile) qualified(name string) string {
	if c.namespace == "" {
		return name
	}
	return c.namespace + "::" + name
}

func cutLast(name string) (before, last string) {
	if i := strings.LastIndex(name, "::"); i >= 0 {
		return name[:i], name[i+2:]
	}
	return "", name
}

// escapes reports whether a member anywhere in a context is named as Cedar's JSON form names references and extension
// values. It reads tokens, and no text, because a string may hold anything.
func escapes(context jsontext.Value) bool {
	for dec := jsontext.NewDecoder(strings.NewReader(string(context))); ; {
		if _, err := dec.ReadToken(); err != nil {
			return false
		}
		if escaped(string(dec.StackPointer())) {
			return true
		}
	}
}

func escaped(pointer string) bool {
	return strings.HasSuffix(pointer, "/__entity") || strings.HasSuffix(pointer, "/__extn")
}

func check(t *testing.T, where string, r *corpusRequest, d evaluation.Decision) {
	t.Helper()
	var errored []string
	for _, e := range d.Errors {
		errored = append(errored, e.Policy)
	}
	if d.Reason != "" || d.Allow != bool(r.Decision) || !sameIDs(d.Determining, r.Reasons) || !sameIDs(errored, r.Errors) {
		t.Errorf("%s: %v %s because of %v, errors %v; Cedar says %v, %v, %v",
			where, d.Allow, d.Reason, d.Determining, d.Errors, bool(r.Decision), r.Reasons, r.Errors)
	}
}

// sameIDs compares our policy ids, path#ordinal, with the corpus', policy and ordinal.
func sameIDs(ours []string, theirs []cedar.PolicyID) bool {
	names := make([]string, len(theirs))
	for i, id := range theirs {
		names[i] = "policies.cedar#" + strings.TrimPrefix(string(id), "policy")
	}
	slices.Sort(names)
	return slices.Equal(ours, names)
}
