package source

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"policy-service/pdp/internal/plainfile"
)

// confined is a bundle directory during one reading. It follows a symbolic link only to files
// of the owner of the link. A link of a tenant may lead to files in the directory of that
// tenant. Any other link may lead to files of the bundle that are in no tenant's directory.
// Otherwise an author of one tenant's files could let the policies of another tenant decide,
// or those of all tenants, and could make the service read any file of the machine.
//
// Names are looked up by path, and opened below a directory that is open already ([os.Root]).
// So a link that a tenant changes in between leads nowhere else.
type confined struct {
	root    *os.Root
	real    string              // the path of root, without links
	tenants string              // where tenants/ is in root, without links; "" if there is none
	homes   map[string]string   // where each tenant's directory is in root, without links
	owners  map[string][]string // the inverse of homes: several tenants can have one directory, by links
	dirs    map[string]string   // where the name of a directory leads
	open    map[string]*os.Root
	walked  map[string]int // names looked up, by owner: see [Bounds]
}

// astray is the error for a link that is not followed. It says where the link leads.
type astray string

func (a astray) Error() string { return "a symbolic link leads from here " + string(a) }

const outOfBundle = astray("out of the bundle's directory")

// maxLinks is how many links a name may pass through, as on Linux. One link may contain 4 KB
// of names, so MaxSteps bounds the names on the whole way.
const (
	maxLinks = 40
	MaxSteps = 255
)

var (
	errTooLong = astray(fmt.Sprintf("through more than %d names", MaxSteps))
	// errWalked says that the reading has looked up as many names as it may for the owner.
	errWalked = errors.New("too many names on the ways to its files")
)

// confine opens a bundle directory. It follows every link on the way to the directory, because
// these links are the operator's.
func confine(dir string) (*confined, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		_, again := os.Stat(dir) // the error of os.Stat says which kind it is
		return nil, cmp.Or(again, err)
	}
	c := &confined{
		real:   real,
		homes:  map[string]string{},
		owners: map[string][]string{},
		dirs:   map[string]string{},
		open:   map[string]*os.Root{},
		walked: map[string]int{},
	}
	if c.root, err = OpenDirectory(real); err != nil {
		return nil, err
	}
	c.findHomes()
	return c, nil
}

// OpenDirectory opens a path that must be a directory. The dot at the end makes the system
// refuse anything else before it is opened: opening a FIFO would wait.
func OpenDirectory(dir string) (*os.Root, error) {
	return os.OpenRoot(dir + string(filepath.Separator) + ".")
}

func (c *confined) close() {
	for _, home := range c.open {
		_ = home.Close()
	}
	_ = c.root.Close()
}

// findHomes finds the tenants' directories. Problems with a directory are noted later, when
// the directory is read.
func (c *confined) findHomes() {
	at, err := c.resolve("tenants")
	if err != nil {
		return
	}
	c.tenants = at
	entries, err := ReadDirectory(c.root, at, -1)
	if err != nil {
		return
	}
	for _, e := range entries {
		home, err := c.resolve("tenants/" + e.Name())
		if err != nil || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if info, err := c.root.Lstat(home); err == nil && info.IsDir() {
			c.homes[e.Name()] = home
			c.owners[home] = append(c.owners[home], e.Name())
		}
	}
}

// resolve returns where a name leads in root, without links. It resolves each directory on the
// way once.
func (c *confined) resolve(name string) (string, error) {
	if name == "." {
		return name, nil
	}
	dir := path.Dir(name)
	at, known := c.dirs[dir]
	if !known {
		var err error
		if at, err = c.resolve(dir); err != nil {
			return "", err
		}
		c.dirs[dir] = at
	}
	return c.follow(OwnerOf(name), at, path.Base(name))
}

// countNames counts the names of a path that is looked up for an owner. It refuses a path
// beyond the owner's bound, because other owners wait for the reading.
func (c *confined) countNames(owner, at string) error {
	if c.walked[owner] >= boundsOf(owner).Looked {
		return errWalked
	}
	c.walked[owner] += 1 + strings.Count(at, "/")
	return nil
}

// follow follows each link that stays in root, whichever owner it belongs to.
func (c *confined) follow(owner, at, name string) (string, error) {
	todo := []string{name}
	for links, steps := 0, 0; len(todo) > 0; steps++ {
		if steps+len(todo) > MaxSteps {
			return "", errTooLong
		}
		next := todo[0]
		todo = todo[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", outOfBundle
			}
			at = path.Dir(at)
			continue
		}
		if err := c.countNames(owner, path.Join(at, next)); err != nil {
			return "", err
		}
		info, err := c.root.Lstat(path.Join(at, next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = path.Join(at, next)
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		target, err := c.root.Readlink(path.Join(at, next))
		if err != nil {
			return "", err
		}
		names := strings.Split(filepath.ToSlash(target), "/")
		if filepath.IsAbs(target) {
			if names, err = c.inside(owner, names); err != nil {
				return "", err
			}
			at = "."
		}
		todo = slices.Concat(names, todo)
	}
	return at, nil
}

// inside returns the rest of an absolute path after the point at which the path reaches root.
// The path may reach root by another way than the one that the bundle was opened by.
func (c *confined) inside(owner string, todo []string) ([]string, error) {
	at := string(filepath.Separator)
	for links, steps := 0, 0; at != c.real; steps++ {
		if len(todo) == 0 {
			return nil, outOfBundle
		}
		if steps+len(todo) > MaxSteps {
			return nil, errTooLong
		}
		next := todo[0]
		todo = todo[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		to := filepath.Join(at, next)
		if err := c.countNames(owner, to); err != nil {
			return nil, err
		}
		target, err := os.Readlink(to)
		switch {
		case errors.Is(err, syscall.EINVAL): // not a link
			at = to
			continue
		case err != nil:
			return nil, outOfBundle
		}
		if links++; links > maxLinks {
			return nil, syscall.ELOOP
		}
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		todo = slices.Concat(strings.Split(filepath.ToSlash(target), "/"), todo)
	}
	return todo, nil
}

// locate returns where a name of the bundle is: a path without links, below a directory that
// is open.
func (c *confined) locate(name string) (*os.Root, string, error) {
	at, err := c.resolve(name)
	if err != nil {
		return nil, "", err
	}
	tenant, home, err := c.owner(name)
	if err != nil {
		return nil, "", err
	}
	if err := c.checkOwner(name, tenant, home, at); err != nil {
		return nil, "", err
	}
	if tenant == "" {
		return c.root, at, nil
	}
	below, err := c.openHome(home)
	if err != nil {
		return nil, "", err
	}
	return below, path.Join(".", strings.TrimPrefix(strings.TrimPrefix(at, home), "/")), nil
}

// owner is the tenant that a name belongs to, "" if it belongs to all tenants, and the
// directory that the owner's files must be in. A tenant's directory that was made after
// findHomes ran does not exist for this reading.
func (c *confined) owner(name string) (tenant, home string, err error) {
	tenant = TenantOf(name)
	home, known := c.homes[tenant]
	switch {
	case known:
		return tenant, home, nil
	case tenant != "" && name != "tenants/"+tenant:
		return "", "", fs.ErrNotExist
	}
	return "", ".", nil
}

// checkOwner refuses a name that leads out of what its owner may read.
func (c *confined) checkOwner(name, tenant, home, at string) error {
	switch {
	case tenant != "" && c.holdsTenants(home):
		return astray("to what holds the tenants' directories")
	case !isIn(at, home):
		return astray("out of the directory of tenant " + strconv.Quote(tenant))
	}
	for dir := at; dir != "." && !c.holdsTenants(dir); dir = path.Dir(dir) {
		for _, other := range c.owners[dir] {
			if other != tenant {
				return astray("into the directory of tenant " + strconv.Quote(other))
			}
		}
	}
	outside := name != "." && name != "tenants" && !strings.HasPrefix(name, "tenants/")
	if outside && c.tenants != "" && isIn(at, c.tenants) {
		return astray("into what holds the tenants' directories")
	}
	return nil
}

// holdsTenants reports if a directory is tenants/, or contains it. No tenant may have such a
// directory.
func (c *confined) holdsTenants(dir string) bool { return isIn(c.tenants, dir) }

// isIn reports if a path is a directory, or is in it. Both are without links.
func isIn(at, dir string) bool {
	return dir == "." || at == dir || strings.HasPrefix(at, dir+"/")
}

// openHome opens a tenant's directory once.
func (c *confined) openHome(home string) (*os.Root, error) {
	if c.open[home] != nil {
		return c.open[home], nil
	}
	below, err := OpenDirectory(filepath.Join(c.real, filepath.FromSlash(home)))
	if err != nil {
		return nil, err
	}
	is, err := below.Stat(".")
	was, missing := c.root.Lstat(home)
	if err = cmp.Or(err, missing); err == nil && !os.SameFile(is, was) {
		err = astray("elsewhere since it was looked at")
	}
	if err != nil {
		_ = below.Close()
		return nil, err
	}
	c.open[home] = below
	return below, nil
}

// Open implements [fs.FS].
func (c *confined) Open(name string) (fs.File, error) {
	below, at, err := c.locate(name)
	if err != nil {
		return nil, err
	}
	f, err := below.OpenFile(at, os.O_RDONLY|plainfile.NoWait, 0)
	if err != nil {
		return nil, err // and not f, a nil *os.File
	}
	return f, nil
}

// Stat implements [fs.StatFS].
func (c *confined) Stat(name string) (fs.FileInfo, error) {
	below, at, err := c.locate(name)
	if err != nil {
		return nil, err
	}
	return below.Lstat(at)
}

// ReadDir implements [fs.ReadDirFS]. It reads at most one name more than a directory may have.
func (c *confined) ReadDir(name string) ([]fs.DirEntry, error) {
	below, at, err := c.locate(name)
	if err != nil {
		return nil, err
	}
	return ReadDirectory(below, at, boundsOf(OwnerOf(name)).Names+1)
}

// Lstat implements [fs.ReadLinkFS].
func (c *confined) Lstat(name string) (fs.FileInfo, error) { return c.root.Lstat(name) }

// ReadLink implements [fs.ReadLinkFS].
func (c *confined) ReadLink(name string) (string, error) { return c.root.Readlink(name) }

// ReadDirectory lists a directory. It lists no more than most entries.
func ReadDirectory(below *os.Root, at string, most int) ([]fs.DirEntry, error) {
	f, err := below.OpenFile(at, os.O_RDONLY|plainfile.NoWait, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(most)
	if err == io.EOF { // none
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}
