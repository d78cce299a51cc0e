package pages

import (
	"bytes"
	"sort"
)

// Bucket is one of the buckets that a file holds. Looking something up in it reads a page
// for each level of its tree, and no more of a damaged one.
type Bucket struct {
	file *File
	root Page
}

// Bucket finds a bucket of the file's top.
func (f *File) Bucket(name string) (b Bucket, found bool, err error) {
	top, err := f.Page(f.Root)
	if err != nil {
		return b, false, err
	}
	e, found, err := Bucket{f, top}.Get([]byte(name))
	if err != nil || !found {
		return b, false, err
	}
	b.file = f
	root, inline, err := e.Bucket()
	if b.root = inline; err == nil && root != 0 {
		b.root, err = f.Page(root)
	}
	return b, true, err
}

// Get finds a key.
func (b Bucket) Get(key []byte) (e Element, found bool, err error) {
	e, found, err = b.descend(func(all []Element) int {
		return sort.Search(len(all), func(i int) bool { return bytes.Compare(all[i].Key, key) > 0 }) - 1
	})
	if err != nil || !found || !bytes.Equal(e.Key, key) {
		return Element{}, false, err
	}
	return e, true, nil
}

// Values are those of some keys, nil where there is none.
func (b Bucket) Values(keys ...string) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, key := range keys {
		e, found, err := b.Get([]byte(key))
		if err != nil {
			return nil, err
		}
		if found && !e.IsBucket {
			values[key] = e.Value
		}
	}
	return values, nil
}

// Last is the last key.
func (b Bucket) Last() (e Element, found bool, err error) {
	return b.descend(func(all []Element) int { return len(all) - 1 })
}

// descend goes down to a leaf, by the one it is told on each page; before the first is the
// first in a branch, and nothing in a leaf.
func (b Bucket) descend(pick func([]Element) int) (e Element, found bool, err error) {
	page := b.root
	for depth := range MaxDepth {
		all, leaf, err := page.Elements()
		if err != nil {
			return e, false, err
		}
		if len(all) == 0 && (depth > 0 || !leaf) {
			return e, false, damage("a page with nothing in it")
		}
		i := pick(all)
		if leaf {
			if i < 0 {
				return e, false, nil
			}
			return all[i], true, nil
		}
		if page, err = b.file.Page(all[max(i, 0)].Page); err != nil {
			return e, false, err
		}
	}
	return e, false, damage("a tree %d pages deep", MaxDepth)
}
