package rpc

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder reads a text where it stands, without a copy.
type decoder struct {
	jsontext.Decoder
	text bytes.Buffer
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// decode begins to read a text. Call done when nothing of the text is to be read any more.
func decode(text []byte) *decoder {
	d := decoders.Get().(*decoder)
	d.text = *bytes.NewBuffer(text)
	d.Reset(&d.text)
	return d
}

// done lets the decoder read another text. One that has read a large text may hold on to much, and is let go.
func (d *decoder) done(text []byte) {
	if len(text) > 64<<10 {
		return
	}
	d.text = bytes.Buffer{}
	d.Reset(&d.text)
	decoders.Put(d)
}
