package tools

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// finding is something that is wrong, or doubtful.
type finding struct {
	file         string
	line, column int // 0 if they are not known
	// pointer is into the lock, until that has been gone through for its line.
	pointer string
	warning bool
	// what and try are as people read them; try is "" if what says it.
	what, try string
}

func (f finding) String() string {
	text := f.file
	if f.line > 0 {
		text += fmt.Sprintf(":%d:%d", f.line, max(f.column, 1))
	}
	text += ": "
	if f.warning {
		text += "warning: "
	}
	if text += f.what; f.try != "" {
		text += "; " + f.try
	}
	return text
}

// findings are all that was found.
type findings struct{ all []finding }

func (f *findings) add(one finding) { f.all = append(f.all, one) }

var placed = regexp.MustCompile(`^(.+?):(\d+):(\d+): (?s:(.*))$`)

// line takes what somebody else has written as a line: its place, and what is wrong.
func (f *findings) line(text string, warning bool) {
	m := placed.FindStringSubmatch(text)
	if m == nil { // it has no place but its file
		file, what, _ := strings.Cut(text, ": ")
		f.add(finding{file: file, warning: warning, what: what})
		return
	}
	line, _ := strconv.Atoi(m[2])
	column, _ := strconv.Atoi(m[3])
	f.add(finding{file: m[1], line: line, column: column, warning: warning, what: m[4]})
}

// sorted are they by place, each once.
func (f *findings) sorted() []finding {
	slices.SortFunc(f.all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column), cmp.Compare(a.what, b.what), cmp.Compare(a.try, b.try))
	})
	return slices.Compact(f.all)
}

// inDir is a file of a bundle as people open it.
func inDir(dir, file string) string { return filepath.Join(dir, filepath.FromSlash(file)) }

// atKey is the place of a key of the configuration, or of what stands below it, or of the nearest above that was given.
func (k *checker) atKey(path, pointer string, warning bool, what, try string) {
	k.line(k.placeOf(path, pointer)+": "+what+"; "+try, warning)
}

// placeOf is the place of a key, or of what stands below it.
func (k *checker) placeOf(path, pointer string) string {
	return cmp.Or(k.from[k.from.Below(path, pointer)], k.file)
}

// atTool is a place in the lock: of a tool, or of what stands below its definition.
func (k *checker) atTool(t *tool, pointer string, warning bool, what, try string) {
	k.add(finding{file: k.lockFile, pointer: t.pointer + pointer, warning: warning, what: what, try: try})
}
