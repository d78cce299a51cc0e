package author

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/plainfile"
)

// shelf is where the declarations of a bundle stand that are for one tenant, or for all of them.
type shelf struct {
	bundle string // its directory
	dir    string // the declarations' directory in the bundle, with slashes; it need not be there
	holds  []held
}

// held is a declaration that is there.
type held struct {
	name, owner string
	text        []byte
}

// openShelf looks at the declarations of a tenant, or of the root for "" and default.
func openShelf(bundle, tenant string) (*shelf, error) {
	if err := bundledir.Exists(bundle); err != nil {
		return nil, err
	}
	s := &shelf{bundle: filepath.Clean(bundle), dir: "access"}
	if tenant != "" && tenant != evaluation.DefaultTenant {
		s.dir = path.Join("tenants", tenant, "access")
		if info, err := os.Stat(s.at(path.Dir(s.dir))); !evaluation.IsTenantName(tenant) || err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s has no tenant %q; name one that has a directory in %s, or make the directory first",
				s.bundle, tenant, s.at("tenants"))
		}
	}
	entries, err := os.ReadDir(s.at(s.dir))
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s is no directory; rename it", s.at(s.dir))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the declarations that are there: %w; try it as a user who can", err)
	}
	for _, e := range entries {
		if ext := path.Ext(e.Name()); strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		text, err := plainfile.Read(s.at(path.Join(s.dir, e.Name())), mostDeclaration)
		if err != nil {
			return nil, fmt.Errorf("cannot read a declaration that is there: %w; mend or remove it", err)
		}
		s.holds = append(s.holds, held{e.Name(), ownerOf(e.Name(), text), text})
	}
	return s, nil
}

// at is the path of a file of the bundle.
func (s *shelf) at(file string) string { return filepath.Join(s.bundle, filepath.FromSlash(file)) }

// of is the declaration of an owner, nil if there is none.
func (s *shelf) of(owner string) *held {
	return s.find(func(h held) bool { return h.owner == owner })
}

// fileOf is the name of the file of an owner, with the declaration that is there, if one is.
func (s *shelf) fileOf(owner string) (name string, there *held) {
	if there = s.of(owner); there != nil {
		return there.name, there
	}
	return owner + ".yaml", nil
}

// named is the declaration of a file, nil if there is none.
func (s *shelf) named(name string) *held { return s.find(func(h held) bool { return h.name == name }) }

func (s *shelf) find(is func(held) bool) *held {
	if n := slices.IndexFunc(s.holds, is); n >= 0 {
		return &s.holds[n]
	}
	return nil
}

// fixed refuses to write where links lead: the target of a link is made elsewhere, and its maker would undo the edit, or
// never see it.
func (s *shelf) fixed(file string) error {
	for part := file; ; part = path.Dir(part) {
		info, err := os.Lstat(s.at(part))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("cannot look at the bundle: %w; try it as a user who can", err)
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link, and so what is written there is lost when the link is changed; import into the directory from which the bundle is deployed, or name the directory that the link leads to",
				s.at(part))
		case part != file && !info.IsDir():
			return fmt.Errorf("%s is no directory; rename it", s.at(part))
		}
		if part == "." {
			return nil
		}
	}
}

// errMeanwhile says that there is another declaration than the one that was looked at.
var errMeanwhile = errors.New("somebody else has written it meanwhile: nothing is written; try again")

// write writes a file of the shelf as a whole, in the place of an earlier one. Everybody can read it, because
// the service may run as another user.
func (s *shelf) write(name string, text []byte, there *held) error {
	dir := s.at(s.dir)
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), plainfile.SyncDir(filepath.Dir(dir)))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file, put := filepath.Join(dir, name), plainfile.Create
	if there != nil {
		put = plainfile.Publish
		if now, err := plainfile.Read(file, mostDeclaration); err != nil || !bytes.Equal(now, there.text) {
			return cmp.Or(err, errMeanwhile)
		}
	}
	switch err := put(file, text); {
	case errors.Is(err, fs.ErrExist):
		return errMeanwhile
	case err != nil:
		return err
	}
	return plainfile.SyncDir(dir)
}

// ownerNamed is the owner that a declaration names, "" if it names none. It checks nothing else in the declaration.
func ownerNamed(text []byte) string {
	var d struct{ Owner yaml.Node }
	if yaml.Unmarshal(text, &d) != nil || d.Owner.Kind != yaml.ScalarNode {
		return ""
	}
	return d.Owner.Value
}

// ownerOf is whose tools a declaration is about.
func ownerOf(name string, text []byte) string {
	if owner := ownerNamed(text); owner != "" {
		return owner
	}
	return strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
}

// withManifest reports whether the bundle has a MANIFEST.
func (s *shelf) withManifest() bool {
	_, err := os.Lstat(s.at("MANIFEST"))
	return !errors.Is(err, fs.ErrNotExist)
}

// command is how the bundle is checked.
func (s *shelf) command() cli.Quoted {
	return cli.Quoted("policy-service check " + cli.Shell(s.bundle))
}
