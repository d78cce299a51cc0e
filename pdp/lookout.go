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

	"policy-service/pdp/internal/source"
)

// lookout watches all directories that one reading of a bundle directory depends on: the bundle's
// directories, and every directory that a path to one of them, or a symbolic link in them,
// passes through. So it notices if the directory vanishes and comes back, and if a link is
// pointed elsewhere. It watches files through their directories, because an editor replaces the
// file.
type lookout struct {
	watcher *fsnotify.Watcher
	// names are the watched directories, by path without symbolic links, each with the names
	// in it that matter.
	names map[string]map[string]bool
	// whole are the watched directories in which every name matters.
	whole map[string]bool
	// roots are the names that matter to more than one tenant, by the directories that they are
	// in. A name there that only a tenant's links lead to matters to the tenant alone.
	roots map[string]rootNames
	// bounds are those of the owner whose directories are watched now. steps and armed are how
	// much of them the owner has used up: names that were followed, and newly watched
	// directories.
	bounds       *source.Bounds
	steps, armed int
	// blind is set if a directory could not be watched.
	blind bool
}

// rootNames are the names in a directory that matter to the root: every name if whole is set.
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
	l := &lookout{
		watcher: watcher,
		names:   map[string]map[string]bool{},
		whole:   map[string]bool{},
		roots:   map[string]rootNames{},
		bounds:  source.RootBounds,
	}
	real, ok := l.follow(root)
	if !ok {
		l.blind = true
		return l, nil
	}
	l.watchOwner(real)
	tenants := filepath.Join(real, "tenants")
	names := l.watchDirectory(tenants)
	for dir, names := range l.names {
		// From here on, each directory is watched for one tenant.
		if l.whole[dir] || len(names) > 0 { // all others are directories that a link in tenants/ leads to
			l.roots[dir] = rootNames{l.whole[dir], maps.Clone(names)}
		}
	}
	l.bounds = source.TenantBounds
	for _, name := range names {
		l.steps, l.armed = 0, 0
		l.watchOwner(filepath.Join(tenants, name))
	}
	return l, nil
}

func (l *lookout) close() { l.watcher.Close() }

// watchOwner watches the directory of the root or of a tenant, with its subdirectories. Tests are
// watched because a MANIFEST may list them.
func (l *lookout) watchOwner(dir string) {
	l.watchDirectory(dir)
	l.watchDirectory(filepath.Join(dir, "entities"))
	l.watchDirectory(filepath.Join(dir, "access"))
	l.watchDirectory(filepath.Join(dir, "tests"))
}

// watchDirectory watches every name in a directory, and the targets of the links in it. It returns
// the names in the directory.
func (l *lookout) watchDirectory(dir string) (names []string) {
	real, ok := l.follow(dir)
	if !ok {
		return nil // the lookout notices if it is created
	}
	l.whole[real] = true
	entries, err := readSome(real, l.bounds.Names+1)
	if err != nil {
		l.blind = true
	}
	if len(entries) > l.bounds.Names {
		l.blind = true
		return nil // the reader refuses such a directory
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // ..data is watched if a link leads through it
		}
		names = append(names, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			l.followFrom(real, []string{e.Name()})
		}
	}
	return names
}

// readSome reads at most so many names of a directory.
func readSome(dir string, most int) ([]fs.DirEntry, error) {
	root, err := source.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return source.ReadDirectory(root, ".", most)
}

// follow resolves a path as the operating system does. It watches each name on the way before it
// looks at the name, so that every later change makes an event. It returns the path without
// links, and whether a directory is there.
func (l *lookout) follow(path string) (real string, isDirectory bool) {
	return l.followFrom(split(path))
}

// followFrom follows names from a directory whose path has no links. It stops if the path takes
// too many steps, or if the owner has used up its bounds. Then the directory is polled, and the
// reader refuses it.
func (l *lookout) followFrom(dir string, todo []string) (real string, isDirectory bool) {
	for steps := 0; len(todo) > 0; steps++ {
		used := l.steps >= l.bounds.Followed || l.armed >= l.bounds.Armed
		if used || steps+len(todo) > source.MaxSteps {
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

// split cuts a path into its root and its names. The root is "" if the path is relative.
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

// watch watches one name in a directory.
func (l *lookout) watch(dir, name string) {
	l.arm(dir)
	l.names[dir][name] = true
}

// arm begins to watch a directory.
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

// wait returns if a name that matters has changed, or may have changed. Events may be lost, or
// never be sent, so wait returns after the limit at the latest. It reports whether the change
// that it saw matters to one tenant alone.
func (l *lookout) wait(ctx context.Context, limit time.Duration) (tenants bool) {
	return l.waitFor(ctx, limit, l.matters)
}

// waitForRoot waits as wait does, but only for changes that may matter to more than one tenant.
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

// mattersToRoot reports whether an event may matter to more than one tenant. A tenant's directory
// is in a directory of the root. Its tenant can change its mode and times without end, so
// such a change does not matter to the root.
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

// matters reports whether an event may be a change of the bundle.
func (l *lookout) matters(event fsnotify.Event) bool {
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	_, itself := l.names[event.Name] // the directory itself was moved or removed
	names, known := l.names[dir]
	return itself || !known || l.whole[dir] || names[name]
}
