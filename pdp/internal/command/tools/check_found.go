package tools

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"policy-service/pdp"
)

// placed is a place in a file, as origins and mistakes of a configuration have it.
var placed = regexp.MustCompile(`^(.+):(\d+):(\d+)$`)

func problemAt(severity pdp.Severity, place, message, try string) pdp.Problem {
	p := pdp.Problem{Severity: severity, File: place, Message: message, Try: try}
	if m := placed.FindStringSubmatch(place); m != nil {
		p.File = m[1]
		p.Line, _ = strconv.Atoi(m[2])
		p.Column, _ = strconv.Atoi(m[3])
	}
	return p
}

func (in *input) add(p pdp.Problem) { in.found = append(in.found, p) }

func (in *input) warn(place, message, try string) {
	in.add(problemAt(pdp.SeverityWarning, place, message, try))
}

func (in *input) refuse(place, message, try string) {
	in.add(problemAt(pdp.SeverityError, place, message, try))
}

// mistake adds a line of another package: a place, and the fault there.
func (in *input) mistake(line string) {
	place, message, _ := strings.Cut(line, ": ")
	in.refuse(place, message, "")
}

// atKey is the place of a key of the configuration, of a value below it, or of the nearest value above that is given.
func (in *input) atKey(path, pointer string) string {
	return cmp.Or(in.origins[in.origins.Below(path, pointer)], in.file)
}

// atTool is the place of a value in a locked definition.
func (in *input) atTool(t *tool, pointer string) string { return in.inLock(t.pointer + pointer) }

// inLock is a place in the lock. People do not edit it, so it is named and not counted out.
func (in *input) inLock(pointer string) string { return in.lockFile + ": " + pointer }

// inBundle is a place in a file of the bundle.
func (in *input) inBundle(file string, line, column int) string {
	file = filepath.Join(in.dir, filepath.FromSlash(file))
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}
