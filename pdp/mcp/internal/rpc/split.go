package rpc

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// split is an object that was read and checked before: it only finds where the members begin and end, and costs a fraction
// of reading.
func split(v jsontext.Value) Object {
	var found [few]member
	members := found[:0]
	for at := next(v, skipSpace(v, 0)+1); v[at] != '}'; {
		m, ends := member{read: true}, skipString(v, at)
		m.quoted = v[at:ends:ends]
		m.name = unquoted(m.quoted)
		at = skipSpace(v, skipSpace(v, ends)+1) // behind the colon
		ends = skipValue(v, at)
		m.value = v[at:ends:ends]
		members = append(members, m)
		at = next(v, ends)
	}
	return newObject(slices.Clone(members))
}

// next is where the next member or element begins, or the end of what they are in, if at is behind the one before.
func next(text []byte, at int) int {
	if at = skipSpace(text, at); text[at] == ',' {
		at = skipSpace(text, at+1)
	}
	return at
}

// skipSpace is where something else than white space comes.
func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// skipString is where a string ends that begins here, or the end of the text if the string has none.
func skipString(text []byte, at int) int {
	for at++; ; at++ {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return len(text)
		}
		at += n
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 { // the backslashes before the quote escape each other
			return at + 1
		}
	}
}

// skipValue is where a value ends that begins here.
func skipValue(text []byte, at int) int {
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		return skipContainer(text, at)
	}
	for text[at] != ',' && text[at] != '}' && text[at] != ']' && text[at] > ' ' {
		at++
	}
	return at
}

func skipContainer(text []byte, at int) int {
	for open := 0; ; {
		switch text[at] {
		case '"':
			at = skipString(text, at)
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		if at++; open == 0 {
			return at
		}
	}
}
