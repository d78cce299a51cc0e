// Package c2sp reads and writes texts of C2SP that logs, verifiers and witnesses share: the cosignature of a witness
// ([NewCosigner]), the file that says which logs and witnesses count ([Policy]), the proof of one entry ([Proof]) and the
// address of a tile ([ParseTile]). Each text is read in the one form there is to write it, and may be anybody's.
//
// The specifications are https://c2sp.org/tlog-cosignature, tlog-policy, tlog-proof and tlog-tiles. Signed notes are
// those of golang.org/x/mod/sumdb/note. The package keeps nothing, and sends nothing.
package c2sp

import "golang.org/x/mod/sumdb/tlog"

// topLevel is the greatest level that has an address.
const topLevel = 63

// tilePrefix is how package tlog begins the address of a tile. C2SP leaves the height out.
const tilePrefix = "tile/8/"

// ParseTile reads the address of a tile of hashes, LEVEL/INDEX[.p/WIDTH], as it stands behind /tile/ in a URL.
func ParseTile(address string) (tlog.Tile, bool) {
	t, err := tlog.ParseTilePath(tilePrefix + address)
	return t, err == nil && t.L >= 0 && t.L <= topLevel // below 0 are entries, which have another address
}
