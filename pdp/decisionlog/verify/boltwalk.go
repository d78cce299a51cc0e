package verify

import "policy-service/pdp/boltfile/pages"

// A cursor goes through one bucket, and looks one element ahead.
type cursor struct {
	*pages.Cursor
	peek pages.Element
	has  bool
}

// bucket begins to read a bucket of the file's top, and stands on its first element. A
// bucket that is not there reads as an empty one.
func bucket(f *pages.File, name string) (*cursor, error) {
	b, _, err := f.Bucket(name)
	if err != nil {
		return nil, err
	}
	c := &cursor{Cursor: b.Cursor()}
	return c, c.next()
}

// next goes to the next element, into peek.
func (c *cursor) next() (err error) {
	c.peek, c.has, err = c.Next()
	return err
}
