// Loc prints how many lines of Go each room has: code, comments and blank lines apart. `make loc` runs it.
//
// It counts the files that git has, without tests, and without what measures the product from outside. A line with code
// on it is code, whether a comment follows the code or not. A line with a comment alone is a comment. Every line of a
// raw string is code. It only prints numbers: no check holds a room to them.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// left are the rooms that are not counted: they measure the product and are no part of it.
var left = []string{"conformance/load", "pdp/server/floor"}

// lines are the numbers of a file, a room, or all rooms.
type lines struct{ files, code, comments, blank int }

func main() {
	rooms, err := count()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loc:", err)
		os.Exit(1)
	}
	fmt.Printf("%-36s  %6s  %7s  %8s  %7s\n", "room", "files", "code", "comments", "blank")
	var all lines
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		all.add(rooms[room])
		rooms[room].print(room)
	}
	all.print("all")
}

// count reads the files that git has in this directory and below.
func count() (map[string]lines, error) {
	names, err := exec.Command("git", "ls-files", "-z", "*.go").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	rooms := map[string]lines{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		room := path.Dir(name)
		outside := slices.ContainsFunc(left, func(l string) bool { return strings.HasPrefix(room+"/", l+"/") })
		if outside || strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := rooms[room]
		sum.add(countFile(source))
		rooms[room] = sum
	}
	return rooms, nil
}

func countFile(source []byte) lines {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	code, comments := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" { // the scanner made it of the line's end
			continue
		}
		on := code
		if tok == token.COMMENT {
			on = comments
		}
		first := file.Line(pos)
		for n := range 1 + strings.Count(text, "\n") {
			on[first+n] = true
		}
	}
	maps.DeleteFunc(comments, func(line int, _ bool) bool { return code[line] })
	total := strings.Count(string(source), "\n")
	return lines{1, len(code), len(comments), total - len(code) - len(comments)}
}

func (l *lines) add(other lines) {
	l.files += other.files
	l.code += other.code
	l.comments += other.comments
	l.blank += other.blank
}

func (l lines) print(room string) {
	fmt.Printf("%-36s  %6d  %7d  %8d  %7d\n", room, l.files, l.code, l.comments, l.blank)
}
