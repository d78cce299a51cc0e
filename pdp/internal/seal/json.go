package seal

import (
	"time"

	"github.com/go-json-experiment/json"
)

// until is a value that expires, as it is sealed. Members may be added: a reader passes over those that it does not know.
type until[T any] struct {
	Expires int64 `json:"exp"` // seconds
	Value   T     `json:"v"`
}

// SealJSON seals a value as JSON. It opens before expires, of which the seconds count, and not after.
func SealJSON[T any](r *Ring, purpose Purpose, binding []byte, v T, expires time.Time) (string, error) {
	text, err := json.Marshal(until[T]{expires.Unix(), v})
	if err != nil {
		return "", err
	}
	return r.Seal(purpose, binding, text)
}

// OpenJSON opens a text that [SealJSON] made of a value of the same type, and says when it expires.
func OpenJSON[T any](r *Ring, purpose Purpose, binding []byte, text string) (v T, expires time.Time, ok bool) {
	opened, ok := r.Open(purpose, binding, text)
	if !ok {
		return v, expires, false
	}
	var u until[T]
	if json.Unmarshal(opened, &u) != nil || r.now().Unix() >= u.Expires {
		return v, expires, false
	}
	return u.Value, time.Unix(u.Expires, 0), true
}
