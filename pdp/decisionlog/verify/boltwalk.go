package verify

import (
	"bytes"
	"fmt"

	"policy-service/pdp/boltfile/pages"
)

// A cursor goes through one bucket, in the order of its keys, a page at a time. How deep
// and how many pages are bounded, because in a damaged file a branch may name a page
// above it, or the same empty page many times.
type cursor struct {
	file  *pages.File
	stack []level
	left  uint64
	last  []byte
	peek  pages.Element
	has   bool
}

// level is a page that the cursor is in, and how far.
type level struct {
	elements []pages.Element
	leaf     bool
	at       int
}

// bucket begins to read a bucket of the file's top, and stands on its first element. A
// bucket that is not there reads as an empty one.
func bucket(b *pages.File, name string) (*cursor, error) {
	top := &cursor{file: b, left: b.Pages}
	if err := top.enter(b.Root); err != nil {
		return nil, err
	}
	for {
		if err := top.next(); err != nil || !top.has {
			return &cursor{}, err
		}
		if string(top.peek.Key) == name {
			break
		}
	}
	root, inline, err := top.peek.Bucket()
	if err != nil {
		return nil, err
	}
	c := &cursor{file: b, left: b.Pages}
	if root != 0 {
		err = c.enter(root)
	} else {
		err = c.push(inline)
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
			if err := c.enter(e.Page); err != nil {
				return err
			}
			continue
		}
		if c.last != nil && bytes.Compare(c.last, e.Key) >= 0 {
			return fmt.Errorf("%w: keys out of order", pages.ErrDamaged)
		}
		c.last, c.peek, c.has = e.Key, e, true
		return nil
	}
	return nil
}

func (c *cursor) enter(id uint64) error {
	if c.left == 0 || len(c.stack) >= pages.MaxDepth {
		return fmt.Errorf("%w: pages that name each other", pages.ErrDamaged)
	}
	c.left--
	page, err := c.file.Page(id)
	if err != nil {
		return err
	}
	return c.push(page)
}

func (c *cursor) push(page pages.Page) error {
	all, leaf, err := page.Elements()
	c.stack = append(c.stack, level{elements: all, leaf: leaf})
	return err
}
