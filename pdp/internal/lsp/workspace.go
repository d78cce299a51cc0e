package lsp

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// workspace are the open documents, and the bundles that they belong to.
type workspace struct {
	server *server

	mu       sync.Mutex
	open     map[string]string      // text by URI
	versions map[string]int         // of the open texts, as the editor counts
	checked  map[string]checked     // by URI, the texts that diagnostics were sent for
	changed  map[string]time.Time   // bundles to be checked, by directory, with their last change
	sound    map[string]*pdp.Bundle // by directory: as it was when it loaded last
	wake     chan struct{}

	published map[string]map[string]bool // by directory, the URIs with diagnostics; for run alone
}

func newWorkspace(s *server) *workspace {
	return &workspace{
		server: s, open: map[string]string{}, changed: map[string]time.Time{}, sound: map[string]*pdp.Bundle{},
		versions: map[string]int{}, checked: map[string]checked{}, wake: make(chan struct{}, 1), published: map[string]map[string]bool{},
	}
}

// document is an open document, as a file of a bundle.
type document struct {
	uri, text string
	dir       string // of the bundle
	file      string // slash path inside the bundle
}

// place is where a document is. It is not ok for one that is no file.
func place(uri string) (d document, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return d, false
	}
	name := filepath.Clean(filepath.FromSlash(u.Path))
	d = document{uri: uri, dir: filepath.Dir(name), file: filepath.Base(name)}
	up := func() string {
		d.file = filepath.Base(d.dir) + "/" + d.file
		d.dir = filepath.Dir(d.dir)
		return d.file
	}
	if slices.Contains([]string{"entities", "access", "tests"}, filepath.Base(d.dir)) {
		up()
	}
	if above := filepath.Dir(d.dir); filepath.Base(above) == "tenants" && isBundle(filepath.Dir(above)) {
		up()
		up()
	}
	return d, true
}

// bundlePatterns are of files that only a bundle has.
var bundlePatterns = []string{"*.cedar", "*.cedarschema", "bundle.yaml"}

// isBundle reports whether a directory looks like a bundle.
func isBundle(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return makesBundle(e.Name()) })
}

// makesBundle reports whether a file in a directory makes it look like a bundle.
func makesBundle(file string) bool {
	return slices.ContainsFunc(bundlePatterns, func(pattern string) bool {
		matches, _ := path.Match(pattern, file)
		return matches
	})
}

// uriOf names a file of a bundle.
func uriOf(dir, file string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, filepath.FromSlash(file)))}
	return u.String()
}

// set has a document hold a text.
func (w *workspace) set(uri string, version int, text string) {
	if _, ok := place(uri); !ok {
		return
	}
	w.mu.Lock()
	w.open[uri], w.versions[uri] = text, version
	w.mu.Unlock()
	w.touch(uri)
}

// forget closes a document: the file on disk counts again.
func (w *workspace) forget(uri string) {
	w.mu.Lock()
	delete(w.open, uri)
	delete(w.versions, uri)
	w.mu.Unlock()
	w.touch(uri)
}

// touch has the bundle of a document be checked.
func (w *workspace) touch(uri string) {
	d, ok := place(uri)
	if !ok {
		return
	}
	w.mu.Lock()
	w.changed[d.dir] = time.Now()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run checks changed bundles, once the author rests.
func (w *workspace) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		dir, wait := w.due()
		for ; wait <= 0; dir, wait = w.due() {
			if ctx.Err() != nil || w.check(dir) != nil {
				return
			}
		}
		timer.Reset(wait)
	}
}

// due is a bundle to check now, or how long that can wait.
func (w *workspace) due() (dir string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = time.Hour
	for one, at := range w.changed {
		if rest := w.server.options.Rest - time.Since(at); rest < wait {
			dir, wait = one, rest
		}
	}
	if wait <= 0 {
		delete(w.changed, dir)
	}
	return dir, wait
}

// texts are those of the open files of a bundle.
func (w *workspace) texts(dir string) map[string]string {
	texts := map[string]string{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for uri, text := range w.open {
		if d, ok := place(uri); ok && d.dir == dir {
			texts[d.file] = text
		}
	}
	return texts
}

// source is the bundle in a directory, with the texts that are not saved.
func (w *workspace) source(dir string) (source pdp.Source, texts map[string]string) {
	source, texts = pdp.Dir(dir), w.texts(dir)
	for file, text := range texts {
		source = source.With(file, []byte(text))
	}
	return source, texts
}

// check sends the problems of a bundle to the editor. The error is that of the wire. A document need not be in a bundle:
// editors bring every YAML and JSON file.
func (w *workspace) check(dir string) error {
	source, texts := w.source(dir)
	if w.published[dir] == nil && !w.isOurs(dir, texts) {
		return nil
	}
	bundle, problems := pdp.Check(source, w.server.options.Now())
	_, tests := pdp.Examples(source)
	if bundle != nil {
		w.mu.Lock()
		w.sound[dir] = bundle
		w.mu.Unlock()
	}
	of := map[string][]diagnostic{}
	for _, p := range slices.Concat(problems, tests) {
		file := cmp.Or(p.File, "bundle.yaml")
		of[file] = append(of[file], diagnose(p, w.textOf(dir, file, texts)))
	}
	before := w.published[dir]
	w.published[dir] = map[string]bool{}
	for file := range texts {
		if of[file] == nil {
			of[file] = []diagnostic{} // it is clean, which has to be said
		}
	}
	for uri := range before {
		if d, _ := place(uri); of[d.file] == nil {
			of[d.file] = []diagnostic{}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(of)) {
		uri := w.uriOf(dir, file)
		w.published[dir][uri] = len(of[file]) > 0
		text := w.textOf(dir, file, texts)
		w.mu.Lock()
		w.checked[uri] = checked{text, of[file]}
		w.mu.Unlock()
		if err := w.server.wire.notify("textDocument/publishDiagnostics", diagnosticsParams{uri, of[file]}); err != nil {
			return err
		}
	}
	return nil
}

// isOurs reports whether a directory is a bundle, with the texts that are open.
func (w *workspace) isOurs(dir string, texts map[string]string) bool {
	return isBundle(dir) || slices.ContainsFunc(slices.Collect(maps.Keys(texts)), makesBundle)
}

// uriOf is the URI of a file, in the words of the editor if the file is open.
func (w *workspace) uriOf(dir, file string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uri := range w.open {
		if d, ok := place(uri); ok && d.dir == dir && d.file == file {
			return uri
		}
	}
	return uriOf(dir, file)
}

// textOf is the text of a file: the one that is not saved, or else the one on disk, or "" if that cannot be read.
func (w *workspace) textOf(dir, file string, texts map[string]string) string {
	if text, ok := texts[file]; ok {
		return text
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(filepath.FromSlash(file))
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostFrame {
		return ""
	}
	text, _ := root.ReadFile(filepath.FromSlash(file))
	return string(text)
}

// diagnose is a problem as an editor shows it.
func diagnose(p pdp.Problem, text string) diagnostic {
	d := diagnostic{Severity: isError, Code: p.Code, Source: "policy-service", Message: p.Message, mend: mendOf(p, text)}
	if p.Severity == pdp.SeverityWarning {
		d.Severity = isWarning
	}
	if p.Try != "" {
		d.Message += "; " + p.Try
	}
	if p.Line > 0 && text != "" {
		d.Range = wordAt(text, p.Line, p.Column)
	}
	return d
}

// at is an open document, with the outline of its bundle as it was when it loaded last: nil if it never did.
func (w *workspace) at(uri string) (d document, o *pdp.Outline, ok bool) {
	d, ok = place(uri)
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.text, ok = w.open[uri]; !ok {
		return d, nil, false
	}
	if bundle := w.sound[d.dir]; bundle != nil {
		tenant := evaluation.DefaultTenant
		if parts := strings.Split(d.file, "/"); len(parts) > 2 && parts[0] == "tenants" {
			tenant = parts[1]
		}
		o = pdp.OutlineOf(bundle, tenant)
	}
	return d, o, true
}
