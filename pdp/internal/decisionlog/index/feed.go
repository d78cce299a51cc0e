package index

import (
	"encoding/binary"
	"sync"
)

// feed holds the terms of records that were appended, until they are indexed: the writer of a record knows its terms, so
// its line need not be read for them. It has a bound. Terms without room in it, or that it never got, are read from the
// log.
type feed struct {
	taken []byte // by the index, which alone touches it, with Index.mu

	mu      sync.Mutex
	on      bool
	waiting []byte // of each record its sequence in 8 bytes, the length of its terms, and these
}

// maxFed is how many bytes may wait to be indexed: those of some 30,000 usual records.
const maxFed = 4 << 20

// Feed gives the terms of a record that is durable, before [Source.Beyond] does. Records come in their order. Terms that
// are empty are not known. It does not wait for the index.
func (x *Index) Feed(sequence uint64, terms Terms) {
	f := &x.fed
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || len(terms) == 0 || len(f.waiting)+len(terms) > maxFed {
		return
	}
	f.waiting = binary.BigEndian.AppendUint64(f.waiting, sequence)
	f.waiting = append(binary.AppendUvarint(f.waiting, uint64(len(terms))), terms...)
}

func (f *feed) begin() {
	f.mu.Lock()
	f.on = true
	f.mu.Unlock()
}

// first is the first record that is not indexed yet, false if there is none. Its terms hold until [feed.pass].
func (f *feed) first() (sequence uint64, terms Terms, ok bool) {
	if len(f.taken) == 0 {
		f.mu.Lock()
		f.taken, f.waiting = f.waiting, nil
		f.mu.Unlock()
	}
	if len(f.taken) == 0 {
		return 0, nil, false
	}
	length, width := binary.Uvarint(f.taken[8:])
	return binary.BigEndian.Uint64(f.taken), Terms(f.taken[8+width:][:length]), true
}

// pass goes on behind the first record.
func (f *feed) pass() {
	length, width := binary.Uvarint(f.taken[8:])
	f.taken = f.taken[8+width+int(length):]
}

// forget forgets all records. They are read from the log.
func (f *feed) forget() {
	f.mu.Lock()
	f.taken, f.waiting = nil, nil
	f.mu.Unlock()
}
