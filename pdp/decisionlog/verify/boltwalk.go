package verify

import (
	"bytes"
	"encoding/binary"
)

// A cursor goes through one bucket, in the order of its keys, a page at a time. How deep
// and how many pages are bounded, because in a damaged file a branch may name a page
// above it, or the same empty page many times.
type cursor struct {
	file  *boltFile
	stack []level
	left  uint64
	last  []byte
	peek  element
	has   bool
}

// level is a page that the cursor is in, and how far.
type level struct {
	elements []element
	leaf     bool
	at       int
}

// bucket begins to read a bucket of the file's top, and stands on its first element. A
// bucket that is not there reads as an empty one.
func (b *boltFile) bucket(name string) (*cursor, error) {
	top := &cursor{file: b, left: b.pages}
	if err := top.enter(b.root); err != nil {
		return nil, err
	}
	for {
		if err := top.next(); err != nil || !top.has {
			return &cursor{}, err
		}
		if string(top.peek.key) == name {
			break
		}
	}
	if !top.peek.bucket || len(top.peek.value) < 16 {
		return nil, boltError("%s is no bucket", name)
	}
	c := &cursor{file: b, left: b.pages}
	var err error
	if root := binary.LittleEndian.Uint64(top.peek.value); root != 0 {
		err = c.enter(root)
	} else {
		err = c.push(top.peek.value[16:])
	}
	if err == nil {
		err = c.next()
	}
	return c, err
}

// next goes to the next element, into peek. It fails where keys do not ascend: what a
// file holds twice, or out of its place, is not passed over.
func (c *cursor) next() error {
	for c.has = false; len(c.stack) > 0; {
		top := &c.stack[len(c.stack)-1]
		if top.at == len(top.elements) {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		e := top.elements[top.at]
		top.at++
		if !top.leaf {
			if err := c.enter(e.page); err != nil {
				return err
			}
			continue
		}
		if c.last != nil && bytes.Compare(c.last, e.key) >= 0 {
			return boltError("keys out of order")
		}
		c.last, c.peek, c.has = e.key, e, true
		return nil
	}
	return nil
}

func (c *cursor) enter(id uint64) error {
	if c.left == 0 || len(c.stack) >= maxDepth {
		return boltError("pages that name each other")
	}
	c.left--
	page, err := c.file.page(id)
	if err != nil {
		return err
	}
	return c.push(page)
}

func (c *cursor) push(page []byte) error {
	all, leaf, err := elements(page)
	c.stack = append(c.stack, level{elements: all, leaf: leaf})
	return err
}
