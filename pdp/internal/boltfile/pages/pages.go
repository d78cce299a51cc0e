// Package pages reads bbolt files without bbolt. bbolt trusts a file: it maps the file into memory and follows offsets
// unchecked. So a truncated file is a bus error; a branch page that names itself overflows the stack or fills the
// memory, which no recover catches; and a page that claims a length of four billion is freed page by page. This package
// checks every offset, and reads every page with ReadAt.
//
// [Open] finds the valid meta page. [File.Check] and [File.CheckWays] tell if bbolt may open the file. [File.Bucket]
// and [Cursor] read it. The package writes nothing.
//
// The format, as far as it is read here (integers in the byte order of the machine
// that wrote it, which on every platform we build for is little-endian):
//
//	page      id u64, flags u16 (1 branch, 2 leaf, 4 meta, 16 freelist), count u16, overflow
//	          u32, then elements; it is 1+overflow pages long
//	meta      magic u32, version u32, page size u32, flags u32, root bucket's page u64,
//	          its sequence u64, freelist u64, pages in use u64, transaction u64,
//	          FNV-1a u64 of all before it. Pages 0 and 1; the valid one with the higher transaction counts
//	branch    offset u32 (from the element), key length u32, page u64
//	leaf      flags u32 (1: the value is a bucket), offset u32, key length u32, value length u32
//	bucket    root page u64, sequence u64; with root page 0 the page itself follows, inline
//	freelist  page u64, ascending; with count 65535 the first of them is the count
package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// File is a bbolt file as its last transaction left it.
type File struct {
	Root  uint64 // the page of the bucket that holds the other buckets
	Pages uint64 // how many pages are in use

	r        io.ReaderAt
	pageSize int64
	freelist uint64
}

const (
	magic         = 0xED0CDAED
	version       = 2
	headerSize    = 16
	metaSize      = 64
	branchFlag    = 1
	leafFlag      = 2
	freelistFlag  = 16
	noFreelist    = 1<<64 - 1
	bucketFlag    = 1
	maxPageLength = 64 << 20 // the longest value, and the keys beside it
)

// maxDepth is how many levels a tree may have. bbolt's trees of a billion keys have 6.
const maxDepth = 32

// ErrDamaged: the file is no bbolt file, or a damaged one.
var ErrDamaged = errors.New("not a bbolt file, or a damaged one")

func damage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Open finds the meta page that is in force, in a file of so many bytes.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r}
	var newest uint64
	for _, at := range metaOffsets {
		page := make([]byte, headerSize+metaSize)
		if at+int64(len(page)) > size {
			continue
		}
		if _, err := r.ReadAt(page, at); err != nil {
			return nil, err
		}
		m := page[headerSize:]
		if binary.LittleEndian.Uint32(m) != magic || binary.LittleEndian.Uint32(m[4:]) != version {
			continue
		}
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSize-8])
		length := int64(binary.LittleEndian.Uint32(m[8:]))
		whole := sum.Sum64() == binary.LittleEndian.Uint64(m[metaSize-8:])
		if !whole || length < 512 || length > 1<<16 || at != 0 && at != length {
			continue
		}
		if tx := binary.LittleEndian.Uint64(m[48:]); f.pageSize == 0 || tx > newest {
			newest = tx
			f.pageSize = length
			f.Root = binary.LittleEndian.Uint64(m[16:])
			f.freelist = binary.LittleEndian.Uint64(m[32:])
			f.Pages = binary.LittleEndian.Uint64(m[40:])
		}
	}
	if f.pageSize == 0 {
		return nil, damage("neither meta page is valid")
	}
	if f.Pages > uint64(size/f.pageSize) {
		return nil, damage("it is cut off: %d bytes, but %d pages of %d are in use", size, f.Pages, f.pageSize)
	}
	return f, nil
}

// metaOffsets are the places where a meta page can be. The place of the second depends on the page size, which the
// first may be too damaged to give.
var metaOffsets = []int64{0, 512, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16}

// Size is how many bytes of the file are in use.
func (f *File) Size() int64 { return int64(f.Pages) * f.pageSize }

// Page is a page with its overflow, or the page of an inline bucket, which stands in a value.
type Page []byte

// Page reads a page with its overflow. Pages 0 and 1 are the file's own.
func (f *File) Page(id uint64) (Page, error) {
	if id < 2 || id >= f.Pages {
		return nil, damage("page %d of %d", id, f.Pages)
	}
	page, err := f.begin(id, f.pageSize)
	if err == nil && page.overflow() > 0 {
		page = append(page, make(Page, int64(page.overflow())*f.pageSize)...)
		_, err = f.r.ReadAt(page[f.pageSize:], int64(id+1)*f.pageSize)
	}
	return page, err
}

// begin reads the first bytes of a page, at least its header. The page must give its own id, and a length that fits
// into the file and into memory.
func (f *File) begin(id uint64, length int64) (Page, error) {
	page := make(Page, length)
	if _, err := f.r.ReadAt(page, int64(id)*f.pageSize); err != nil {
		return nil, err
	}
	if page.id() != id {
		return nil, damage("page %d says it is another", id)
	}
	if more := page.overflow(); id+more >= f.Pages || int64(1+more)*f.pageSize > maxPageLength {
		return nil, damage("page %d is too long", id)
	}
	return page, nil
}

func (p Page) id() uint64       { return binary.LittleEndian.Uint64(p) }
func (p Page) flags() uint16    { return binary.LittleEndian.Uint16(p[8:]) }
func (p Page) count() int       { return int(binary.LittleEndian.Uint16(p[10:])) }
func (p Page) overflow() uint64 { return uint64(binary.LittleEndian.Uint32(p[12:])) }

// Element is one key of a page: with its value in a leaf, with a page in a branch.
type Element struct {
	Key, Value []byte
	Page       uint64
	IsBucket   bool
}

// Elements are the elements of a page, in its order. leaf tells if the page is a leaf.
func (p Page) Elements() (all []Element, leaf bool, err error) {
	if len(p) < headerSize {
		return nil, false, damage("a page of %d bytes", len(p))
	}
	if leaf = p.flags() == leafFlag; !leaf && p.flags() != branchFlag || headerSize+p.count()*16 > len(p) {
		return nil, false, damage("a page that is neither branch nor leaf")
	}
	all = make([]Element, p.count())
	for i := range all {
		if all[i], err = element(p[headerSize+i*16:], leaf); err != nil {
			return nil, false, err
		}
		if i > 0 && bytes.Compare(all[i-1].Key, all[i].Key) >= 0 {
			return nil, false, damage("keys out of order")
		}
	}
	return all, leaf, nil
}

func element(from []byte, leaf bool) (e Element, err error) {
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(from[at:])) }
	offset, key, value := u32(0), u32(4), uint64(0)
	if leaf {
		e.IsBucket = u32(0)&bucketFlag != 0
		offset, key, value = u32(4), u32(8), u32(12)
	} else {
		e.Page = binary.LittleEndian.Uint64(from[8:])
	}
	if offset+key+value > uint64(len(from)) {
		return e, damage("a key that ends beyond its page")
	}
	e.Key, e.Value = from[offset:offset+key], from[offset+key:offset+key+value]
	return e, nil
}

// Bucket finds the bucket that an element names: the page of its root, or an inline page, which the element itself
// holds. An inline page has no place in the file, so its id must be 0.
func (e Element) Bucket() (root uint64, inline Page, err error) {
	if !e.IsBucket || len(e.Value) < 16 {
		return 0, nil, damage("%.20q is no bucket", e.Key)
	}
	if root = binary.LittleEndian.Uint64(e.Value); root == 0 {
		if inline = e.Value[16:]; len(inline) < headerSize || inline.id() != 0 || inline.overflow() != 0 {
			return 0, nil, damage("the bucket %.20q holds a page from elsewhere", e.Key)
		}
	}
	return root, inline, nil
}
