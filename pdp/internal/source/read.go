package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"syscall"

	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/plainfile"
)

// read returns the bytes of a file. If it cannot, it notes why.
func (r *reader) read(file string, k *kind) ([]byte, bool) {
	f, size := r.open(file, k)
	if f == nil {
		return nil, false
	}
	defer f.Close()
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead)
	// The file may have grown since it was measured.
	if _, err := b.ReadFrom(io.LimitReader(f, k.max+1)); err != nil {
		r.unreadable(file, err)
		return nil, false
	}
	if int64(b.Len()) > k.max {
		r.tooLarge(file, k)
		return nil, false
	}
	return b.Bytes(), true
}

// open opens a regular file within its bound. It recognises most other things before it opens
// them, because to open a device may do anything. It looks again after the file is open,
// because the name may lead to another file by then, even to a FIFO. confined opens a FIFO
// without waiting for a process that writes to it.
func (r *reader) open(file string, k *kind) (fs.File, int64) {
	info, err := fs.Stat(r.fsys, file)
	if err != nil {
		r.unreadable(file, err)
		return nil, 0
	}
	if !r.fits(file, k, info) {
		return nil, 0
	}
	f, err := r.fsys.Open(file)
	if err != nil {
		r.unreadable(file, err)
		return nil, 0
	}
	if info, err = f.Stat(); err != nil {
		r.unreadable(file, err)
	} else if r.fits(file, k, info) {
		return f, info.Size()
	}
	_ = f.Close()
	return nil, 0
}

// fits reports if a file is regular and within its bound. If not, it notes why.
func (r *reader) fits(file string, k *kind, info fs.FileInfo) bool {
	switch {
	case !info.Mode().IsRegular():
		r.problem(file, "not_a_file", k.name+" is expected here, and this is a "+plainfile.TypeName(info.Mode()),
			"put a regular file there, or remove it")
	case info.Size() > k.max:
		r.tooLarge(file, k)
	default:
		return true
	}
	return false
}

func (r *reader) isDirectory(dir string) bool {
	info, err := fs.Stat(r.fsys, dir)
	switch {
	case err != nil:
		r.unreadable(dir, err)
	case !info.IsDir():
		r.problem(dir, "not_a_directory",
			"a directory is expected here, and this is a "+plainfile.TypeName(info.Mode()),
			"make it a directory, or rename it")
	default:
		return true
	}
	return false
}

func (r *reader) tooLarge(file string, k *kind) {
	try := "split it into several files"
	if k.name == settingsKind.name {
		try = "there may be one of it only: say less in it"
	}
	r.problem(file, "too_large", fmt.Sprintf("%s may have %d bytes, and this one has more", k.name, k.max), try)
}

// unreadable notes why a file or directory could not be read. It leaves out the path in the
// error, which may be a path of this machine. The problem has a path of its own.
func (r *reader) unreadable(file string, err error) {
	if file == "." {
		file = ""
	}
	subject := "this"
	if file == "" {
		subject = "the directory " + r.place()
	}
	var led astray
	switch {
	case errors.As(err, &led):
		r.problem(file, "link_astray", led.Error()+", and is not followed",
			"put a file or directory here instead; a link may lead to what is in the same tenant's directory, or one outside of tenants/ to what is in the bundle and in no tenant's")
	case errors.Is(err, errWalked):
		use := r.usage(file)
		use.Exceeds(true, "names on the ways to all its files, links followed", int64(use.bounds.Looked),
			document.Problem{File: file, Code: "many_links", Try: "put files in the place of links, or have the links lead there by fewer names"},
			&r.files.Problems)
	case errors.Is(err, syscall.ELOOP):
		r.problem(file, "symlink_loop", subject+" is a symbolic link that leads back to itself",
			"point the link at something, or remove it")
	case errors.Is(err, fs.ErrNotExist):
		r.problem(file, "unreadable", subject+" is a link to nothing, or vanished while it was read",
			"point the link at something, or remove it")
	case errors.Is(err, fs.ErrPermission):
		r.problem(file, "unreadable", subject+" may not be read by this process",
			"give the user that runs policy-service permission to read it")
	default:
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		r.problem(file, "unreadable", subject+" cannot be read: "+err.Error(), "see to the disk or the mount it is on")
	}
}

// place names the bundle's root in messages.
func (r *reader) place() string {
	if r.dir == "" {
		return "that holds the bundle"
	}
	return strconv.Quote(r.dir)
}
