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
	// in it that matter: whether one matters to more than one tenant. A name that only a tenant's
	// links lead to matters to the tenant alone. The name everyName stands for all names.
	names map[string]map[string]bool
	// bounds are those of the owner whose directories are watched now. steps and armed are how
	// much of them the owner has used up: names that were followed, and newly watched
	// directories.
	bounds       *source.Bounds
	steps, armed int
	// blind is set if a directory could not be watched.
	blind bool
}

const everyName = ""

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
	l := &lookout{watcher: watcher, names: map[string]map[string]bool{}, bounds: source.RootBounds}
	real, ok := l.follow(root)
	if !ok {
		l.blind = true
		return l, nil
	}
	l.watchOwner(real)
	tenants := filepath.Join(real, "tenants")
	names := l.watchDirectory(tenants)
	l.bounds = source.TenantBounds // from here on, each directory is watched for one tenant
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
	l.watch(real, everyName)
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
	l.names[dir][name] = l.names[dir][name] || l.bounds == source.RootBounds
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

// wait returns if a name that matters has changed, or may have changed, and with ofRoot only if it
// may matter to more than one tenant. Events may be lost, or never be sent, so wait returns after
// the limit at the latest. It reports whether the change that it saw matters to one tenant alone.
func (l *lookout) wait(ctx context.Context, limit time.Duration, ofRoot bool) (tenants bool) {
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
			if matters, toRoot := l.matters(event); toRoot || matters && !ofRoot {
				return !toRoot
			}
		}
	}
}

// matters reports whether an event may be a change of the bundle, and whether it may matter to
// more than one tenant. A tenant's directory is in a directory of the root. Its tenant can change
// its mode and times without end, so such a change does not matter to the root.
func (l *lookout) matters(event fsnotify.Event) (matters, toRoot bool) {
	dir, name := filepath.Split(event.Name)
	in, known := l.names[filepath.Clean(dir)]
	inside, itself := l.names[event.Name] // the directory itself was moved or removed
	ofRoot := slices.Contains(slices.Collect(maps.Values(inside)), true)
	_, every := in[everyName]
	_, one := in[name]
	toRoot = ofRoot || (!known || in[everyName] || in[name]) && (event.Op != fsnotify.Chmod || !itself)
	return itself || !known || every || one, toRoot
}
