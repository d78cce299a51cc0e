package pages

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Check tells if bbolt can write to the file. It goes through every page in use. Each page must be used once, be where
// it says it is, fit into the file, and be either free or in a tree.
func (f *File) Check() error {
	c := f.checker(true)
	if err := c.free(); err != nil {
		return err
	}
	return c.bucket(f.Root, 0)
}

// CheckWays tells if bbolt can read the file without getting lost. It reads all branches, and only the header of each
// leaf, so that a large file takes little time.
func (f *File) CheckWays() error { return f.checker(false).bucket(f.Root, 0) }

// checker marks the pages that it met, a bit each.
type checker struct {
	*File
	leaves bool // the content of leaves is checked, too
	used   []uint64
}

func (f *File) checker(leaves bool) *checker {
	return &checker{File: f, leaves: leaves, used: make([]uint64, f.Pages/64+1)}
}

// use marks a page, and fails if it was marked before.
func (c *checker) use(id uint64) error {
	if id < 2 || id >= c.Pages {
		return damage("page %d of %d", id, c.Pages)
	}
	if c.used[id/64]&(1<<(id%64)) != 0 {
		return damage("page %d is used twice", id)
	}
	c.used[id/64] |= 1 << (id % 64)
	return nil
}

// read reads a page, and marks it with its overflow.
func (c *checker) read(id uint64) (Page, error) {
	p, err := c.Page(id)
	if err != nil {
		return nil, err
	}
	return p, c.useAll(p)
}

func (c *checker) useAll(p Page) error {
	for i := range 1 + p.overflow() {
		if err := c.use(p.id() + i); err != nil {
			return err
		}
	}
	return nil
}

// glance reads the header of a leaf.
func (c *checker) glance(id uint64) error {
	if id >= c.Pages {
		return damage("page %d of %d", id, c.Pages)
	}
	p, err := c.begin(id, headerSize)
	if err != nil {
		return err
	}
	if p.flags() != leafFlag || p.count() == 0 {
		return damage("page %d is no leaf, or an empty one", id)
	}
	return c.useAll(p)
}

// free goes through the freelist. A file may have none.
func (c *checker) free() error {
	if c.freelist == noFreelist {
		return nil
	}
	p, err := c.read(c.freelist)
	if err != nil {
		return err
	}
	list, n := p[headerSize:], uint64(p.count())
	if n == 1<<16-1 {
		n, list = binary.LittleEndian.Uint64(list), list[8:]
	}
	if p.flags() != freelistFlag || n > uint64(len(list)/8) {
		return damage("page %d is no list of what is free", c.freelist)
	}
	for i := range n {
		if err := c.use(binary.LittleEndian.Uint64(list[i*8:])); err != nil {
			return err
		}
	}
	return nil
}

// bucket goes through a bucket and the buckets in it. Leaves of the topmost bucket are always read, because they hold
// where the other buckets are.
func (c *checker) bucket(root uint64, depth int) error {
	if depth > maxDepth {
		return damage("buckets in buckets, %d deep", depth)
	}
	t := tree{checker: c, leaves: c.leaves || depth == 0, visit: func(e Element) error {
		if !e.IsBucket {
			return nil
		}
		root, inline, err := e.Bucket()
		if err != nil || root != 0 {
			if err == nil {
				err = c.bucket(root, depth+1)
			}
			return err
		}
		inside, leaf, err := inline.Elements()
		if err == nil && (!leaf || slices.ContainsFunc(inside, func(e Element) bool { return e.IsBucket })) {
			err = damage("the bucket %.20q holds a page that is no leaf", e.Key)
		}
		return err
	}}
	_, err := t.below(root, nil, nil, 0)
	return err
}

// tree is the pages of one bucket. All leaves must be equally deep.
type tree struct {
	*checker
	leaves bool
	visit  func(Element) error
}

// below goes through a page and everything below it. Keys must be at least from and less than to. height is how many
// levels lie between the page and the leaves. The first key must equal the key that the branch above has for the page:
// if not, bbolt adds a second element to the branch when it writes the page, and frees pages that the first element
// still names.
func (t *tree) below(id uint64, from, to []byte, depth int) (height int, err error) {
	if depth > maxDepth {
		return 0, damage("a tree %d pages deep", depth)
	}
	p, err := t.read(id)
	if err != nil {
		return 0, err
	}
	elements, leaf, err := p.Elements()
	if err != nil {
		return 0, err
	}
	n := len(elements)
	foreign := depth > 0 && (n == 0 || !bytes.Equal(elements[0].Key, from))
	if foreign || to != nil && bytes.Compare(elements[n-1].Key, to) >= 0 {
		return 0, damage("page %d holds keys of another, or none", id)
	}
	if leaf {
		for _, e := range elements {
			if err := t.visit(e); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	return t.children(id, elements, to, depth)
}

func (t *tree) children(id uint64, elements []Element, to []byte, depth int) (height int, err error) {
	if len(elements) == 0 {
		return 0, damage("page %d is a branch with nothing below it", id)
	}
	for i, e := range elements {
		if !t.leaves && height == 1 {
			if err := t.glance(e.Page); err != nil {
				return 0, err
			}
			continue
		}
		end := to
		if i+1 < len(elements) {
			end = elements[i+1].Key
		}
		h, err := t.below(e.Page, e.Key, end, depth+1)
		if err != nil {
			return 0, err
		}
		if i > 0 && h+1 != height {
			return 0, damage("the leaves below page %d are not equally deep", id)
		}
		height = h + 1
	}
	return height, nil
}
