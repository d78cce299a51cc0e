package pages

import (
	"bytes"
	"sort"
)

// Cursor goes through a bucket in the order of its keys, a page at a time. It bounds how deep it goes and how many
// pages it reads, because in a damaged file a branch may name a page above it, or the same empty page many times.
type Cursor struct {
	bucket Bucket
	begun  bool
	path   []level // from the root to the page that the cursor is in
	left   uint64  // how many pages it may still read
	last   []byte  // the key that the cursor returned last
}

// level is a page on the cursor's path.
type level struct {
	elements []Element
	leaf     bool
	next     int // the element that the cursor goes to next
}

// Cursor makes a cursor that stands before the first key.
func (b Bucket) Cursor() *Cursor { return &Cursor{bucket: b} }

// Next goes to the next key. It fails if keys do not ascend, so that it passes over nothing that a file holds twice or
// out of its place.
func (c *Cursor) Next() (e Element, found bool, err error) {
	if !c.begun {
		err = c.begin()
	}
	for err == nil && len(c.path) > 0 {
		page := &c.path[len(c.path)-1]
		if page.next == len(page.elements) {
			c.path = c.path[:len(c.path)-1]
			continue
		}
		e = page.elements[page.next]
		page.next++
		if !page.leaf {
			err = c.enter(e.Page)
			continue
		}
		if c.last != nil && bytes.Compare(c.last, e.Key) >= 0 {
			return Element{}, false, damage("keys out of order")
		}
		c.last = e.Key
		return e, true, nil
	}
	return Element{}, false, err
}

// Seek goes to a key. If the key is not there, Next goes to the one after it.
func (c *Cursor) Seek(key []byte) (e Element, found bool, err error) {
	e, found, err = c.descend(func(all []Element) int {
		return sort.Search(len(all), func(i int) bool { return bytes.Compare(all[i].Key, key) > 0 })
	})
	if err != nil || !found || !bytes.Equal(e.Key, key) {
		return Element{}, false, err
	}
	return e, true, nil
}

// Last goes to the last key.
func (c *Cursor) Last() (e Element, found bool, err error) {
	return c.descend(func(all []Element) int { return len(all) })
}

// descend goes down from the root to a leaf. On each page it goes to the last one of as many elements as upTo says;
// if that is none, then in a branch to the first, and in a leaf to nothing.
func (c *Cursor) descend(upTo func([]Element) int) (e Element, found bool, err error) {
	for err = c.begin(); err == nil && len(c.path) > 0; err = c.enter(e.Page) {
		page := &c.path[len(c.path)-1]
		if len(page.elements) == 0 && (len(c.path) > 1 || !page.leaf) {
			return e, false, damage("a page with nothing in it")
		}
		page.next = upTo(page.elements)
		if page.leaf && page.next == 0 {
			return e, false, nil
		}
		page.next = max(page.next, 1)
		e = page.elements[page.next-1]
		if page.leaf {
			c.last = e.Key
			return e, true, nil
		}
	}
	return Element{}, false, err
}

func (c *Cursor) begin() error {
	c.begun, c.path, c.last = true, nil, nil
	if c.bucket.root == nil {
		return nil
	}
	c.left = c.bucket.file.Pages
	return c.push(c.bucket.root)
}

func (c *Cursor) enter(id uint64) error {
	if c.left == 0 || len(c.path) >= maxDepth {
		return damage("pages that name each other")
	}
	c.left--
	page, err := c.bucket.file.Page(id)
	if err != nil {
		return err
	}
	return c.push(page)
}

func (c *Cursor) push(page Page) error {
	all, leaf, err := page.Elements()
	c.path = append(c.path, level{elements: all, leaf: leaf})
	return err
}
