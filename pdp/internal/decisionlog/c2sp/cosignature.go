package c2sp

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
)

// The types of keys of witnesses.
const (
	typeEd25519 = 4
	typeMLDSA44 = 6
)

// timeSize is the length of the time in front of the signature of a cosignature.
const timeSize = 8

// cosigner verifies the cosignatures of a witness.
type cosigner struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

// NewCosigner is the verifier for a witness's key, NAME+HASH+KEY. It is of Ed25519.
func NewCosigner(vkey string) (note.Verifier, error) {
	name, rest, _ := strings.Cut(vkey, "+")
	hash, encoded, _ := strings.Cut(rest, "+")
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case err != nil || len(key) == 0 || !isName(name):
		return nil, errors.New("it is no verifier key of the form NAME+HASH+KEY")
	case hash != fmt.Sprintf("%08x", keyHash(name, key)):
		return nil, errors.New("its hash is not that of its name and key")
	case key[0] == typeMLDSA44:
		return nil, errors.New("it is a key of ML-DSA-44, and this version verifies cosignatures of Ed25519 only: give the witness's key of Ed25519")
	case key[0] != typeEd25519 || len(key) != 1+ed25519.PublicKeySize:
		return nil, errors.New("it is no key of a witness: that has the type 4 (cosignature/v1, Ed25519)")
	}
	return cosigner{name, keyHash(name, key), key[1:]}, nil
}

// isName reports whether a key may have the name, as package note has it.
func isName(name string) bool {
	return name != "" && utf8.ValidString(name) && strings.IndexFunc(name, unicode.IsSpace) < 0 && !strings.Contains(name, "+")
}

func keyHash(name string, key []byte) uint32 {
	sum := sha256.Sum256(append([]byte(name+"\n"), key...))
	return binary.BigEndian.Uint32(sum[:])
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.hash }

// Verify implements [note.Verifier]. What is signed is the text of the note with a time in front.
func (c cosigner) Verify(text, cosignature []byte) bool {
	if len(cosignature) != timeSize+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(cosignature)
	if at > math.MaxInt64 {
		return false
	}
	signed := append([]byte("cosignature/v1\ntime "+strconv.FormatUint(at, 10)+"\n"), text...)
	return ed25519.Verify(c.key, signed, cosignature[timeSize:])
}

// CosignedAt is the time of a cosignature that was verified.
func CosignedAt(s note.Signature) (time.Time, error) {
	raw, err := base64.StdEncoding.DecodeString(s.Base64)
	if err != nil || len(raw) != 4+timeSize+ed25519.SignatureSize { // the hash of the key stands in front
		return time.Time{}, errors.New("it is no cosignature")
	}
	return time.Unix(int64(binary.BigEndian.Uint64(raw[4:])), 0).UTC(), nil
}
