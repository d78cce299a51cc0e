package source

import "context"

// ReadAndCount is a reading of a directory, and how many names it looked up for each owner.
func ReadAndCount(dir string) (*Files, map[string]int) {
	var walked map[string]int
	files, _ := Dir(dir).read(context.Background(), func(r *reader) {
		r.bundle()
		r.checkManifest()
		walked = r.fsys.(*confined).walked
	})
	return files, walked
}
