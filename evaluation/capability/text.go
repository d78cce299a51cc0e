package capability

import (
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// given drops members that are "" or 0: they were not given.
func given(members map[string]any) map[string]any {
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == "" || v == 0 || v == int64(0) })
	return members
}

// canonical is the form of RFC 8785 of what has JSON.
func canonical(v any) []byte {
	b := jsontext.Value(text(v))
	if err := b.Canonicalize(); err != nil {
		panic(err) // of JSON that was just written
	}
	return b
}

// text is the JSON of what has one. Text that is not valid UTF-8, such as the name of a tool, is mended.
func text(v any) []byte {
	b, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}
