package pdp

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"policy-service/pdp/internal/bundle"
)

// lookout watches what one reading of a bundle directory depends on: the bundle's
// directories, and every directory that a path to one of them or a symbolic link
// in them passes through, so that the directory may vanish and come back and any
// link may be pointed elsewhere. Files are watched by way of their directories,
// because an editor replaces the file.
type lookout struct {
	watcher *fsnotify.Watcher
	// names are the directories watched, by path without symbolic links, each with
	// the names in it that matter.
	names map[string]map[string]bool
	// whole are those in which every name matters.
	whole map[string]bool
	// roots are the names that matter to more than one tenant, by the directories they are
	// in. What a tenant's links lead to there is the tenant's alone.
	roots map[string]rootNames
	// may is how much the owner may have of whose directories are watched next, steps and
	// armed how much of it is used up: names that were followed, and new directories.
	may          *bundle.Bounds
	steps, armed int
	// blind is set where something could not be watched.
	blind bool
}

// rootNames are the names in a directory that matter to the root: these, or every one.
type rootNames struct {
	whole bool
	names map[string]bool
}

func newLookout(root string) (*lookout, error) {
	if !filepath.IsAbs(root) {
		wd, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		// Not filepath.Abs: it takes "link/.." for ".", and the reader does not.
		root = wd + string(filepath.Separator) + root
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	l := &lookout{watcher: watcher, names: map[string]map[string]bool{}, whole: map[string]bool{}, roots: map[string]rootNames{}, may: bundle.RootBounds}
	real, ok := l.follow(root)
	if !ok {
		l.blind = true
		return l, nil
	}
	l.part(real)
	tenants := filepath.Join(real, "tenants")
	names := l.directory(tenants)
	for dir, names := range l.names {
		// What is watched from here on is watched for one tenant.
		if l.whole[dir] || len(names) > 0 { // else it is one that a link in tenants/ leads to
			l.roots[dir] = rootNames{l.whole[dir], maps.Clone(names)}
		}
	}
	l.may = bundle.TenantBounds
	for _, name := range names {
		l.steps, l.armed = 0, 0
		l.part(filepath.Join(tenants, name))
	}
	return l, nil
}

func (l *lookout) close() { l.watcher.Close() }

// part watches the root or a tenant's directory, and what belongs to it. Tests
// are watched because a MANIFEST may list them.
func (l *lookout) part(dir string) {
	l.directory(dir)
	l.directory(filepath.Join(dir, "entities"))
	l.directory(filepath.Join(dir, "tests"))
}

// directory watches everything in a directory, and what the links in it lead to.
// It returns the names in it.
func (l *lookout) directory(dir string) (names []string) {
	real, ok := l.follow(dir)
	if !ok {
		return nil // its creation is watched
	}
	l.whole[real] = true
	entries, err := readSome(real, l.may.Names+1)
	if err != nil {
		l.blind = true
	}
	if len(entries) > l.may.Names {
		l.blind = true
		return nil // and the reader refuses it
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // ..data is watched where a link leads through it
		}
		names = append(names, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			l.followFrom(real, []string{e.Name()})
		}
	}
	return names
}

// readSome reads a directory as far as so many names.
func readSome(dir string, most int) ([]fs.DirEntry, error) {
	root, err := bundle.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return bundle.ReadDirectory(root, ".", most)
}

// follow resolves a path as the operating system does, and watches each name on
// the way before it looks at it: what changes afterwards makes an event. It
// returns the path without links, and whether a directory is there.
func (l *lookout) follow(path string) (real string, isDirectory bool) {
	return l.followFrom(split(path))
}

// followFrom follows names from a directory without links on its way. It stops where it
// is too far to go, and where it has gone far enough for this owner: what is there is
// polled, and the reader refuses it.
func (l *lookout) followFrom(dir string, todo []string) (real string, isDirectory bool) {
	for steps := 0; len(todo) > 0; steps++ {
		if steps+len(todo) > bundle.MaxSteps || l.steps >= l.may.Watch.Followed || l.armed >= l.may.Watch.Armed {
			l.blind = true
			return dir, false
		}
		l.steps++
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			dir = filepath.Dir(dir) // dir has no links in it, so this is its parent
			continue
		}
		l.watch(dir, name)
		at := filepath.Join(dir, name)
		info, err := os.Lstat(at)
		switch {
		case err != nil:
			return at, false
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				return at, false
			}
			next, names := split(target)
			if next != "" {
				dir = next
			}
			todo = slices.Concat(names, todo)
		case info.IsDir():
			dir = at
		default:
			return at, false
		}
	}
	l.arm(dir)
	return dir, true
}

// split cuts a path into its root, "" where it is relative, and its names.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	rest := path[len(volume):]
	if filepath.IsAbs(path) {
		root = volume + string(filepath.Separator)
	}
	for name := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) }) {
		if name != "." {
			names = append(names, name)
		}
	}
	return root, names
}

func (l *lookout) watch(dir, name string) {
	l.arm(dir)
	l.names[dir][name] = true
}

func (l *lookout) arm(dir string) {
	if l.names[dir] != nil {
		return
	}
	l.names[dir] = map[string]bool{}
	l.armed++
	if l.watcher.Add(dir) != nil {
		l.blind = true // it vanished, or may not be read, or there are too many watches
	}
}

// wait returns when something that matters has changed or may have: an event may
// also have been lost, or never have been sent, and so it waits no longer than
// the limit. It reports whether what it saw is one tenant's, and nobody else's.
func (l *lookout) wait(ctx context.Context, limit time.Duration) (tenants bool) {
	return l.waitFor(ctx, limit, l.matters)
}

// waitForRoot is wait for what may be no tenant's.
func (l *lookout) waitForRoot(ctx context.Context, limit time.Duration) {
	l.waitFor(ctx, limit, l.mattersToRoot)
}

func (l *lookout) waitFor(ctx context.Context, limit time.Duration, matters func(fsnotify.Event) bool) (tenants bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-l.watcher.Errors: // mostly an overflow of the queue: events were lost
			return false
		case event := <-l.watcher.Events:
			if matters(event) {
				return !l.mattersToRoot(event)
			}
		}
	}
}

// mattersToRoot reports whether it may be anybody's but one tenant's. A tenant's directory
// stands in one of the root's, and what it has besides its files, such as its mode or its
// times, is its owner's to change without end.
func (l *lookout) mattersToRoot(event fsnotify.Event) bool {
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	_, rootItself := l.roots[event.Name]
	_, itself := l.names[event.Name]
	if event.Op == fsnotify.Chmod && itself && !rootItself {
		return false
	}
	_, known := l.names[dir]
	in := l.roots[dir]
	return rootItself || !known || in.whole || in.names[name]
}

func (l *lookout) matters(event fsnotify.Event) bool {
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	_, itself := l.names[event.Name] // the directory itself was moved or removed
	names, known := l.names[dir]
	return itself || !known || l.whole[dir] || names[name]
}
