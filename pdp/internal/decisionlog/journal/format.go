// Package journal makes records durable before the decision log has them. The log's segments are filled from the journal,
// some time behind it. Until a record is filled, only the journal has it. After that the journal does not count for it.
//
// Call [Create], and then [Journal.Write] for each frame of calls: if it returns nil, the frame is durable. The writer that fills
// the log calls [Journal.Filled] behind it. After a crash, [Read] finds the frames that were not filled. Then all of
// them are filled, and a new journal is created: a journal is never opened again to write to it.
//
// Start with this file, which specifies the files, and says why recovery is right. journal.go writes frames and erases
// them, and read.go reads them.
//
// The package does not read records, and does not fill the log. It locks nothing: the log's lock keeps other
// processes away.
package journal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"math"
	"path/filepath"
	"time"
)

// # Files
//
// A journal is two files of one directory, journal.0 and journal.1, mode 0600. They are written in turns: when one is
// full, the writer goes on in the other. All numbers are big-endian. A file is a row of blocks of 4,096 bytes:
//
//	block 0, block 1   the header, two times
//	block 2 …          frames, each from the beginning of a block, one after the other; what they leave of their last
//	                   block is zeros
//
// No block has bytes of two frames. So nothing is ever written to a block that holds an answered frame,
// and a write that is torn can only harm its own frame. (Shorter steps would cost the disk and the CPU as much:
// a page of the cache has 4,096 bytes.) A file is made of written zeros, so that a sync of a frame syncs its data alone.
//
// # Header
//
//	 0   8  "pdpjrnl\n"
//	 8   4  FormatVersion
//	12   4  which of the two files this is: 0 or 1
//	16  16  id of the journal, random
//	32  16  mark of this round, random and secret
//	48   8  round: each time one of the two files is begun, it gets the next number
//	56   8  frames: the number of the last frame that was durable when the round was begun, 0 for none
//	64   8  records: how many records the frames up to that one have
//	72   8  size of the file in bytes
//	80   4  CRC-32C of the bytes above
//
// The rest of the block is zeros, which are not read. Of two headers that are whole, the one of the higher round counts.
//
// # Frame
//
//	 0  16  mark of the round
//	16   4  CRC-32C of the id, the mark, and bytes 20 to 63
//	20   4  CRC-32C of the id, the mark, and the content
//	24   8  offset of the frame in the file
//	32   8  number: the first frame of a journal is 1, and there is no gap, also not from one file to the other
//	40   8  first: how many records the frames before it have, in the whole journal
//	48   4  length of the content in bytes
//	52   4  how many calls the content has, at least 1
//	56   4  how many records they have together
//	60   4  0
//	64  32  MAC: HMAC-SHA256 by the journal's key of the id, bytes 20 to 63, and the content
//	96      content: the calls, one after the other
//
// A call:
//
//	 0   4  length of the call in bytes, these included
//	 4   4  how many records it has, at least 1
//	 8   8  its time: seconds since 1970, UTC, and
//	16   4  nanoseconds, less than 1,000,000,000
//	20   8  weight
//	28   4  length of payer, then payer, then the records
//
// A record:
//
//	0   4  length of id
//	4   4  length of body
//	8      id, then body
//
// There is one way to write a frame: a frame that a reader accepts is, encoded again, the same bytes.
//
// A frame is known by its mark. It is new in each round and secret, so neither a frame of an earlier
// round nor bytes that a caller chose can pass for a frame. The checksums find damage of the disk; the offset finds
// a frame that was written to the wrong place. The MAC finds the changes of a program that can write to the files and does not
// have the key: with id and number in it, no frame can be altered, added, moved, or taken from between two others.
//
// # Order of writes
//
// A frame is one write to zeros, or to frames of an earlier round, and one sync. The next one is written after that sync
// returned. After an error no frame is written any more.
//
// A file is begun again when all of its frames are filled, which is to say that the log has their records and says so by
// the number of the last one of them, durably. The header is written to block 0 and synced, then to block 1 and synced.
// Only then a frame is written to the file. So the rounds say in which order the two files were written: each frame of
// the file with the lower round has a lower number than each frame of the other one.
//
// To erase is to write zeros over frames that are filled, and to sync. Headers stay.
//
// # Recovery
//
// The log says: the journal's id, and "after", the number of the last frame that was filled. The reader takes every
// frame of both files that is whole. To find them it looks at the beginning of each block, so that a bad frame does not
// hide the ones behind it. It does not ask how the files came to be as they are. The frames that it finds are judged by numbers alone:
//
//	pending   the frames with numbers above after
//	synced    the highest number that was certainly durable: that of a frame that is whole; one less than that of a
//	          frame whose first 64 bytes are whole; "frames" of a header
//	damage    a frame from after+1 up to synced that is not whole; a frame with good checksums and a wrong MAC, which no
//	          disk and no crash makes, if no good one comes after it
//
// Why is nothing lost, if there is no damage? Let N be the last answered frame. Its write was synced, and
// so was the header before it, both times, so that the reader knows the mark. Frames up to N that are pending are
// not written over: their blocks belong to them, and their file is not begun again before they are filled. So the disk
// has them. If it does not have one of them any more, that is damage, whenever anything later is there to say so.
//
// Why does a crash never look like damage? Only writes that were not synced can be torn:
//
//	the frame in flight      one at most, N+1. If it is whole it counts: it was not answered, but it says what
//	                         was to be done. If its first 64 bytes are whole it says that N was synced, which is true.
//	                         Otherwise it is nothing. What it covers was a frame that is filled, or zeros.
//	a header                 one of the two. Until both are synced the file has no frame of the new round. If the new
//	                         header is found, the file has no frames; if the old one is found, it has frames that are
//	                         filled. Either is right. "frames" was true before the header was written.
//	zeros over frames        all of them are filled.
//
// A file that is missing, that belongs to another journal, or has no header that is whole, is not left by a crash. It
// may have held frames after those of the other file, and nothing in the other file could tell. So that is damage, and
// the number of records is unknown. The same holds of a file that is shorter than its header says, and of a part that
// the disk does not read, unless there is a later frame: then the numbers tell.
//
// Which changes are never found? If the very last frame is altered after it was synced, it looks like one that was torn, unless its
// checksums are right. Frames can be taken from the end. If both files are put back to an older state, that is not
// seen.
const (
	// FormatVersion is the version of all of this. Version 1 was never released.
	FormatVersion = 2

	block    = 4096
	copies   = 2 // of the header
	framesAt = copies * block

	magic      = "pdpjrnl\n"
	headerSize = 84
	summedSize = 64 // of the part of a head that has a checksum
	headSize   = summedSize + sha256.Size
	callSize   = 32 // of a call without payer and records
	recordSize = 8  // of a record without id and body
)

// The size of each of the two files.
const (
	DefaultSize = 4 << 20
	MinSize     = 256 << 10
	MaxSize     = 64 << 20
)

// ID is the name of a journal. No two have the same.
type ID [16]byte

// String is the name in hexadecimal.
func (i ID) String() string { return hex.EncodeToString(i[:]) }

// Key authenticates the frames of a journal.
type Key [32]byte

// mac is a MAC that is made or compared many times.
type mac struct{ hash.Hash }

func (k *Key) mac() mac { return mac{hmac.New(sha256.New, k[:])} }

// of appends the MAC of a frame to b.
func (m mac) of(b []byte, id *ID, head, content []byte) []byte {
	m.Reset()
	_, _ = m.Write(id[:])
	_, _ = m.Write(head[20:summedSize])
	_, _ = m.Write(content)
	return m.Sum(b)
}

// mark distinguishes the frames of one round from all other bytes.
type mark [16]byte

// Record is one record of a call. Its salt is a part of its body.
type Record struct {
	ID   string
	Body []byte
}

// Call has records that belong together: all of them are in the log or none. It has at least one record.
type Call struct {
	Time    time.Time
	Payer   string
	Weight  int64
	Records []Record
}

// Frame has the calls that were written and synced together.
type Frame struct {
	Number uint64 // the first frame of a journal is 1
	First  uint64 // how many records the frames before it have
	Calls  []Call
}

// Paths are the two files of a journal in a directory.
func Paths(dir string) [2]string {
	return [2]string{filepath.Join(dir, "journal.0"), filepath.Join(dir, "journal.1")}
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.BigEndian
)

// header is in the first two blocks of a file.
type header struct {
	which   uint32
	id      ID
	mark    mark
	round   uint64
	frames  uint64
	records uint64
	size    int64
}

// encode returns the block.
func (h *header) encode() []byte {
	b := append(make([]byte, 0, block), magic...)
	b = order.AppendUint32(b, FormatVersion)
	b = order.AppendUint32(b, h.which)
	b = append(b, h.id[:]...)
	b = append(b, h.mark[:]...)
	b = order.AppendUint64(b, h.round)
	b = order.AppendUint64(b, h.frames)
	b = order.AppendUint64(b, h.records)
	b = order.AppendUint64(b, uint64(h.size))
	b = order.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:block]
}

// ErrNewer: a later release wrote the file.
var ErrNewer = errors.New("a newer version made it")

// decodeHeader returns false if the block is no header. It returns ErrNewer for a header of another version.
func decodeHeader(b []byte) (h header, whole bool, err error) {
	if string(b[:len(magic)]) != magic || order.Uint32(b[80:]) != crc32.Checksum(b[:80], castagnoli) {
		return header{}, false, nil
	}
	if v := order.Uint32(b[8:]); v != FormatVersion {
		return header{}, false, fmt.Errorf("its format is %d, and this version reads %d: %w; run that version, or restore what was backed up before the upgrade", v, FormatVersion, ErrNewer)
	}
	h = header{
		which: order.Uint32(b[12:]), id: ID(b[16:]), mark: mark(b[32:]), round: order.Uint64(b[48:]),
		frames: order.Uint64(b[56:]), records: order.Uint64(b[64:]), size: int64(order.Uint64(b[72:])),
	}
	return h, h.size >= framesAt && h.size <= MaxSize && h.size%block == 0, nil
}

// seed begins the checksums of a round's frames.
func (h *header) seed() uint32 {
	return crc32.Update(crc32.Checksum(h.id[:], castagnoli), castagnoli, h.mark[:])
}

// head is the first bytes of a frame.
type head struct {
	content uint32 // its checksum
	offset  int64
	number  uint64
	first   uint64
	length  uint32
	calls   uint32
	records uint32
}

// put writes a head to b, but not its MAC.
func (h *head) put(b []byte, m *mark, seed uint32) {
	copy(b, m[:])
	order.PutUint32(b[20:], h.content)
	order.PutUint64(b[24:], uint64(h.offset))
	order.PutUint64(b[32:], h.number)
	order.PutUint64(b[40:], h.first)
	order.PutUint32(b[48:], h.length)
	order.PutUint32(b[52:], h.calls)
	order.PutUint32(b[56:], h.records)
	order.PutUint32(b[60:], 0)
	order.PutUint32(b[16:], crc32.Update(seed, castagnoli, b[20:summedSize]))
}

// decodeHead returns false if b is not the beginning of a frame of this round.
func decodeHead(b []byte, of *header, seed uint32) (head, bool) {
	if !bytes.Equal(b[:len(of.mark)], of.mark[:]) || order.Uint32(b[16:]) != crc32.Update(seed, castagnoli, b[20:summedSize]) {
		return head{}, false
	}
	h := head{
		content: order.Uint32(b[20:]), offset: int64(order.Uint64(b[24:])), number: order.Uint64(b[32:]),
		first: order.Uint64(b[40:]), length: order.Uint32(b[48:]), calls: order.Uint32(b[52:]), records: order.Uint32(b[56:]),
	}
	return h, h.number > 0 && order.Uint32(b[60:]) == 0
}

// end is where the next frame begins.
func (h *head) end() int64 { return h.offset + extent(int64(h.length)) }

// extent is how many bytes the blocks have that hold a frame whose content has so many.
func extent(content int64) int64 { return (headSize + content + block - 1) / block * block }

// AppendCall appends a call as [Journal.Write] takes it. A call that is too large for any file becomes one that Write
// refuses.
func AppendCall(dst []byte, c *Call) []byte {
	start := len(dst)
	dst = order.AppendUint32(dst, 0)
	dst = order.AppendUint32(dst, uint32(len(c.Records)))
	dst = order.AppendUint64(dst, uint64(c.Time.Unix()))
	dst = order.AppendUint32(dst, uint32(c.Time.Nanosecond()))
	dst = order.AppendUint64(dst, uint64(c.Weight))
	dst = order.AppendUint32(dst, uint32(len(c.Payer)))
	dst = append(dst, c.Payer...)
	for i := range c.Records {
		r := &c.Records[i]
		dst = order.AppendUint32(dst, uint32(len(r.ID)))
		dst = order.AppendUint32(dst, uint32(len(r.Body)))
		dst = append(dst, r.ID...)
		dst = append(dst, r.Body...)
	}
	if n := len(dst) - start; n <= MaxSize {
		order.PutUint32(dst[start:], uint32(n))
	}
	return dst
}

// count returns how many calls and records stand in encoded bytes.
func count(encoded []byte) (calls, records uint32, err error) {
	for len(encoded) > 0 {
		if len(encoded) < callSize {
			return 0, 0, errEncoded
		}
		n := order.Uint32(encoded)
		if n == 0 {
			return 0, 0, ErrTooLarge
		}
		more := order.Uint32(encoded[4:])
		if n < callSize || int64(n) > int64(len(encoded)) || more == 0 || more > n/recordSize || records > math.MaxUint32-more {
			return 0, 0, errEncoded
		}
		calls, records, encoded = calls+1, records+more, encoded[n:]
	}
	return calls, records, nil
}

// errEncoded: bytes are not what AppendCall makes of a call with records.
var errEncoded = errors.New("these bytes are no calls")

// decodeCalls reads the content of a frame. The bodies of the records are parts of it.
func decodeCalls(content []byte, calls, records uint32) ([]Call, error) {
	if got, all, err := count(content); err != nil || got != calls || all != records || calls == 0 {
		return nil, errEncoded
	}
	decoded := make([]Call, 0, calls) // count has seen that the content is long enough
	for len(content) > 0 {
		n := order.Uint32(content)
		c, err := decodeCall(content[:n])
		if err != nil {
			return nil, err
		}
		decoded, content = append(decoded, c), content[n:]
	}
	return decoded, nil
}

func decodeCall(b []byte) (Call, error) {
	n, nanoseconds := order.Uint32(b[4:]), order.Uint32(b[16:])
	c := Call{
		Time:    time.Unix(int64(order.Uint64(b[8:])), int64(nanoseconds)).UTC(),
		Weight:  int64(order.Uint64(b[20:])),
		Records: make([]Record, 0, n),
	}
	payer, b, ok := cut(b[callSize:], order.Uint32(b[28:]))
	if !ok || nanoseconds >= uint32(time.Second) {
		return Call{}, errEncoded
	}
	c.Payer = string(payer)
	for range n {
		if len(b) < recordSize {
			return Call{}, errEncoded
		}
		idSize, bodySize := order.Uint32(b), order.Uint32(b[4:])
		id, rest, ok := cut(b[recordSize:], idSize)
		if !ok {
			return Call{}, errEncoded
		}
		body, rest, ok := cut(rest, bodySize)
		if !ok {
			return Call{}, errEncoded
		}
		c.Records = append(c.Records, Record{ID: string(id), Body: body})
		b = rest
	}
	if len(b) > 0 {
		return Call{}, errEncoded
	}
	return c, nil
}

// cut divides bytes after the first n. It returns false if there are fewer.
func cut(b []byte, n uint32) (first, rest []byte, ok bool) {
	if int64(n) > int64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}
