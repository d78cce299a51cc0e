package rpc

import (
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

var errNoArray = errors.New("not an array")

// Elements are those of an array, as slices of v. It is an error if v is none, or if an object in it has a member twice.
func Elements(v jsontext.Value) (all []jsontext.Value, err error) {
	in := decode(v)
	defer in.done(v)
	if in.PeekKind() != '[' {
		return nil, errNoArray
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, err
	}
	for in.PeekKind() != ']' {
		one, err := in.ReadValue()
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Clip(one))
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := in.ReadToken(); err != io.EOF {
		return nil, errFollows
	}
	return all, nil
}

// Array is an array in JSON of values as they are.
func Array(values []jsontext.Value) jsontext.Value {
	size := 2
	for _, v := range values {
		size += len(v) + 1
	}
	b := append(make([]byte, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
