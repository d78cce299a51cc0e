package pages

// Bucket is one of the buckets that a file holds. The zero value is an empty one.
type Bucket struct {
	file *File
	root Page
}

// Top is the bucket that holds the other buckets.
func (f *File) Top() (Bucket, error) {
	root, err := f.Page(f.Root)
	return Bucket{f, root}, err
}

// Bucket finds a bucket of the file's top.
func (f *File) Bucket(name string) (b Bucket, found bool, err error) {
	top, err := f.Top()
	if err != nil {
		return b, false, err
	}
	e, found, err := top.Get([]byte(name))
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

// Get finds a key. It reads one page for each level of the tree, and no more of a damaged file.
func (b Bucket) Get(key []byte) (e Element, found bool, err error) { return b.Cursor().Seek(key) }

// Values are the values of some keys, nil if a key is not there.
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
