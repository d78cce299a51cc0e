package tools

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// blanks are what may stand between the parts of a JSON text.
const blanks = " \t\r\n"

// offsets goes through a JSON text once, and finds where each of the pointers leads: to the name of a member, to an element,
// or to the nearest above it that there is.
func offsets(text []byte, pointers []string) []int {
	wanted := map[string][]int{} // by what is above a pointer, or it
	for n, pointer := range pointers {
		for at := pointer; at != ""; at = at[:max(0, strings.LastIndexByte(at, '/'))] {
			wanted[at] = append(wanted[at], n)
		}
	}
	found, depths, before := make([]int, len(pointers)), make([]int, len(pointers)), 0
	for d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true)); ; {
		if _, err := d.ReadToken(); err != nil {
			return found
		}
		after := int(d.InputOffset())
		begin := after - len(bytes.TrimLeft(text[before:after], blanks+",:"))
		before = after
		at := d.StackPointer()
		for _, n := range wanted[string(at)] {
			if len(at) > depths[n] { // the first token there is the name
				found[n], depths[n] = begin, len(at)
			}
		}
	}
}
