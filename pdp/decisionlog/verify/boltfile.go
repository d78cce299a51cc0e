package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// A boltFile reads a bbolt database without bbolt: a stranger shares nothing with the
// writer, and bbolt trusts its files. It maps them into memory and follows offsets
// unchecked, so that a truncated file is a bus error, and a branch page that names
// itself overflows the stack, which no recover catches. Here every offset is checked
// and every page is read with ReadAt.
//
// The format, as far as it is read here (integers in the byte order of the machine
// that wrote it, which on every platform we build for is little-endian):
//
//	page    id u64, flags u16 (1 branch, 2 leaf, 4 meta), count u16, overflow u32, then
//	        elements; it is 1+overflow pages long
//	meta    magic u32, version u32, page size u32, flags u32, root bucket's page u64,
//	        its sequence u64, freelist u64, pages in use u64, transaction u64,
//	        FNV-1a u64 of all before it. Pages 0 and 1; the valid one with the higher transaction counts
//	branch  offset u32 (from the element), key length u32, page u64
//	leaf    flags u32 (1: the value is a bucket), offset u32, key length u32, value length u32
//	bucket  root page u64, sequence u64; with root page 0 the page itself follows, inline
type boltFile struct {
	r        io.ReaderAt
	size     int64
	pageSize int64
	root     uint64
	pages    uint64
}

const (
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	pageHeader    = 16
	metaSize      = 64
	branchFlag    = 1
	leafFlag      = 2
	bucketFlag    = 1
	maxDepth      = 32       // bbolt's trees of a billion keys are 6 deep
	maxPageLength = 64 << 20 // the longest value and what stands beside it
)

var errBolt = errors.New("not a bbolt file, or a damaged one")

func boltError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errBolt, fmt.Sprintf(format, args...))
}

// openBolt finds the meta page that counts.
func openBolt(r io.ReaderAt, size int64) (*boltFile, error) {
	b := &boltFile{r: r, size: size}
	var best uint64
	for _, at := range b.metaOffsets() {
		page := make([]byte, pageHeader+metaSize)
		if at+int64(len(page)) > size {
			continue
		}
		if _, err := r.ReadAt(page, at); err != nil {
			return nil, err
		}
		m := page[pageHeader:]
		if binary.LittleEndian.Uint32(m) != boltMagic || binary.LittleEndian.Uint32(m[4:]) != boltVersion {
			continue
		}
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSize-8])
		length := int64(binary.LittleEndian.Uint32(m[8:]))
		if sum.Sum64() != binary.LittleEndian.Uint64(m[metaSize-8:]) || length < 512 || length > 1<<16 || at != 0 && at != length {
			continue
		}
		if tx := binary.LittleEndian.Uint64(m[48:]); b.pageSize == 0 || tx > best {
			best = tx
			b.pageSize, b.root, b.pages = length, binary.LittleEndian.Uint64(m[16:]), binary.LittleEndian.Uint64(m[40:])
		}
	}
	if b.pageSize == 0 {
		return nil, boltError("neither meta page is valid")
	}
	if b.pages > uint64(size/b.pageSize) {
		return nil, boltError("it is cut off: %d bytes, but %d pages of %d are in use", size, b.pages, b.pageSize)
	}
	return b, nil
}

// metaOffsets are the places where a meta page can be: the second one's depends on the
// page size, which the first may be too damaged to tell.
func (b *boltFile) metaOffsets() []int64 {
	offsets := []int64{0}
	for length := int64(512); length <= 1<<16; length *= 2 {
		offsets = append(offsets, length)
	}
	return offsets
}

// page reads page id with its overflow.
func (b *boltFile) page(id uint64) ([]byte, error) {
	if id < 2 || id >= b.pages {
		return nil, boltError("page %d of %d", id, b.pages)
	}
	header := make([]byte, pageHeader)
	if _, err := b.r.ReadAt(header, int64(id)*b.pageSize); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(header) != id {
		return nil, boltError("page %d says it is another", id)
	}
	more := uint64(binary.LittleEndian.Uint32(header[12:]))
	if id+more >= b.pages || int64(1+more)*b.pageSize > maxPageLength {
		return nil, boltError("page %d is too long", id)
	}
	page := make([]byte, int64(1+more)*b.pageSize)
	_, err := b.r.ReadAt(page, int64(id)*b.pageSize)
	return page, err
}

// element is one key of a page: with its value in a leaf, with a page in a branch.
type element struct {
	key, value []byte
	page       uint64
	bucket     bool
}

// elements are a page's, in its order; whether they are leaves, its flags say.
func elements(page []byte) (all []element, leaf bool, err error) {
	if len(page) < pageHeader {
		return nil, false, boltError("a page of %d bytes", len(page))
	}
	flags, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if flags != leafFlag && flags != branchFlag || pageHeader+count*16 > len(page) {
		return nil, false, boltError("a page that is neither branch nor leaf")
	}
	all = make([]element, count)
	for i := range all {
		at := pageHeader + i*16
		if all[i], err = oneElement(page[at:], flags == leafFlag); err != nil {
			return nil, false, err
		}
		if i > 0 && bytes.Compare(all[i-1].key, all[i].key) >= 0 {
			return nil, false, boltError("keys out of order")
		}
	}
	return all, flags == leafFlag, nil
}

func oneElement(from []byte, leaf bool) (e element, err error) {
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(from[at:])) }
	offset, key, value := u32(0), u32(4), uint64(0)
	if leaf {
		e.bucket = u32(0)&bucketFlag != 0
		offset, key, value = u32(4), u32(8), u32(12)
	} else {
		e.page = binary.LittleEndian.Uint64(from[8:])
	}
	if offset+key+value > uint64(len(from)) {
		return e, boltError("a key that ends beyond its page")
	}
	e.key, e.value = from[offset:offset+key], from[offset+key:offset+key+value]
	return e, nil
}
