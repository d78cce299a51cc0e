package capability

import (
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"time"

	"policy-service/evaluation"
)

// TypeList is the typ in the header of a status list.
const TypeList = "statuslist+jwt"

const (
	// ListSize is how many tokens a status list is about.
	ListSize = 1 << 16
	// MaxList bounds the text of a status list, in bytes.
	MaxList = 64 << 10

	listBytes = ListSize / 4
	maxTTL    = 3600 // seconds
)

// State is the state of a token in a status list. The zero State is unknown.
type State int

// The states.
const (
	StateUnknown State = iota
	StateValid
	StateInvalid   // it was revoked, or has ended
	StateSuspended // policies would not grant it now
)

// Listed is the place of a token in a status list.
type Listed struct {
	URI   string
	Index int // less than [ListSize]
}

// StatusList says of each token of a list whether it counts: a Status List Token (draft-ietf-oauth-status-list), with two
// bits for each. Make one with [NewStatusList], or read one with [ReadStatusList].
type StatusList struct {
	URI               string
	IssuedAt, Expires time.Time     // in whole seconds; at Expires it says nothing more
	TTL               time.Duration // how long it is kept before the next one is fetched

	bits []byte
}

// NewStatusList makes the list of an address, in which all are valid. A reader that can have no newer one keeps to it for
// four times the TTL, in whole seconds.
func NewStatusList(uri string, issued time.Time, ttl time.Duration) *StatusList {
	issued = issued.Truncate(time.Second)
	return &StatusList{uri, issued, issued.Add(4 * ttl), ttl, make([]byte, listBytes)}
}

// Set sets the state of a token. An unknown state becomes invalid.
func (l *StatusList) Set(index int, s State) {
	if s == StateUnknown {
		s = StateInvalid
	}
	shift := index % 4 * 2
	l.bits[index/4] = l.bits[index/4]&^(3<<shift) | byte(s-1)<<shift
}

// State is that of a token. From the end of the list on it is unknown, as is that of a token outside the list.
func (l *StatusList) State(index int, now time.Time) State {
	if index < 0 || index/4 >= len(l.bits) || !now.Before(l.Expires) {
		return StateUnknown
	}
	if s := State(l.bits[index/4]>>(index%4*2)&3) + 1; s <= StateSuspended {
		return s
	}
	return StateUnknown
}

// Claims is the payload of the list, to be signed with the type [TypeList].
//
//	{"sub":…, "iat":…, "exp":…, "ttl":…, "status_list": {"bits": 2, "lst":…}}
func (l *StatusList) Claims() []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(l.bits) // to memory, which never fails
	_ = w.Close()
	return canonical(map[string]any{
		"sub": l.URI, "iat": l.IssuedAt.Unix(), "exp": l.Expires.Unix(), "ttl": seconds(l.TTL),
		"status_list": map[string]any{"bits": 2, "lst": base64url.EncodeToString(b.Bytes())},
	})
}

// ReadStatusList reads a list that the service signed. Whether it is the one that was asked for, and not older than
// another, the caller says. An error beside that of keys says that it is none.
func ReadStatusList(ctx context.Context, keys Keys, text string) (*StatusList, error) {
	s, ok := splitCompact(text, MaxList)
	kid, known := keyID(s.header, TypeList)
	if !ok || !known {
		return nil, fmt.Errorf("it is no JWS of type %s", TypeList)
	}
	if _, good, err := verifiedBy(ctx, keys, kid, s); err != nil || !good {
		if err == nil {
			err = fmt.Errorf("it was not signed by the service")
		}
		return nil, err
	}
	return parseStatusList(s.payload)
}

func parseStatusList(payload []byte) (*StatusList, error) {
	limits := wide
	limits.Body = MaxList
	o, err := evaluation.ParseWithNulls(payload, limits)
	if err != nil {
		return nil, err
	}
	var r reader
	list := r.object(o, false, "status_list")
	bits := r.whole(list, 2, 2, false, "status_list", "bits")
	l := &StatusList{
		URI:      r.text(o, maxURL, false, "sub"),
		IssuedAt: r.time(o, "iat"),
		Expires:  r.time(o, "exp"),
		TTL:      time.Duration(r.whole(o, 1, maxTTL, false, "ttl")) * time.Second,
	}
	packed, err := base64url.DecodeString(r.text(list, MaxList, false, "status_list", "lst"))
	if l.bits = inflated(packed); r.err == nil && (err != nil || l.bits == nil) {
		r.want(false, fmt.Sprintf("not a list of %d bytes at most, as ZLIB compresses it", listBytes), "status_list", "lst")
	}
	if r.err != nil || bits == 0 {
		return nil, r.err
	}
	return l, nil
}

// inflated is the text before compression, nil if it is not whole, or too large: a little text can stand for very much.
func inflated(packed []byte) []byte {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(z, listBytes+1))
	if err != nil || len(b) > listBytes {
		return nil
	}
	return b
}

// SaysSame reports whether another list says the same of each token.
func (l *StatusList) SaysSame(other *StatusList) bool { return bytes.Equal(l.bits, other.bits) }
