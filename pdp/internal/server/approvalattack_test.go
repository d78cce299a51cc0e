package server_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/server/auth/keys"
)

// attack does something to the files that needs no key, and says what.
func (m *hostileModel) attack() string {
	all := []func() string{
		m.olderFile, m.olderFiles, m.olderLog, m.olderApprovals, m.olderApprovals, m.olderApprovals, m.reservedApprovals, m.reservedApprovals,
		m.flippedBytes, m.otherKey, m.strangersApprovals, m.deletedFile, m.withoutMACs, m.editedApprovals, m.editedApprovals, m.unlisted, m.unlisted,
		m.usesEdited, m.usesEdited, m.usesEdited, m.editedIDs, m.editedIDs, m.forgedSteps, m.forgedSteps, m.forgedSteps, m.forgedSteps, m.alteredLine, m.cutLog, m.removedLine, m.removedLine,
		m.olderKeys, m.editedKeys, m.editedKeys, m.editedJournal, m.editedJournal, m.editedJournal,
		m.restoredDirectory, m.restoredDirectory, m.restoredBackup, m.restoredBackup, m.restoredBackup, m.restoredBackup, m.restoredBackup,
	}
	return all[m.rng.IntN(len(all))]()
}

// olderFile puts one file back.
func (m *hostileModel) olderFile() string {
	from := m.rng.IntN(len(m.past))
	name := oneOf(m, sortedNames(m.past[from]))
	return m.putBack(from, name)
}

func (m *hostileModel) putBack(from int, name string) string {
	content := m.past[from][name]
	if isSegment(name) {
		m.cut = true
	}
	m.put(name, content)
	return fmt.Sprintf("%s of stop %d", name, from)
}

// olderFiles puts some files back, and never approvals.db and the log.
func (m *hostileModel) olderFiles() string {
	from := m.rng.IntN(len(m.past))
	approvals := m.chance(2)
	said := []string{"together:"}
	for _, name := range sortedNames(m.past[from]) {
		if name == approvalsDB && !approvals || isSegment(name) && approvals || m.chance(2) {
			continue
		}
		said = append(said, m.putBack(from, name))
	}
	return strings.Join(said, " ")
}

// olderLog puts all segments back, and nothing else.
func (m *hostileModel) olderLog() string {
	from := max(0, len(m.past)-1-m.rng.IntN(3))
	m.cut = true
	for name := range m.read() {
		if isSegment(name) {
			must(m.t, os.Remove(filepath.Join(m.data, filepath.FromSlash(name))))
		}
	}
	for name := range m.past[from] {
		if isSegment(name) {
			m.putBack(from, name)
		}
	}
	return fmt.Sprintf("the log of stop %d", from)
}

func (m *hostileModel) olderApprovals() string {
	from := max(0, len(m.past)-1-m.rng.IntN(4))
	if _, is := m.past[from][approvalsDB]; !is {
		return "nothing"
	}
	return m.putBack(from, approvalsDB)
}

// reservedApprovals puts a copy back that was made while a use was in doubt, and may hide
// from the log's index that the use came to be.
func (m *hostileModel) reservedApprovals() string {
	if len(m.midway) == 0 {
		return "nothing"
	}
	m.put(approvalsDB, m.midway[len(m.midway)-1-m.rng.IntN(min(4, len(m.midway)))])
	if m.chance(2) {
		return "approvals.db with a reservation; " + m.editedIDs()
	}
	return "approvals.db with a reservation"
}

func (m *hostileModel) flippedBytes() string {
	all := m.read()
	name := oneOf(m, sortedNames(all))
	content := slices.Clone(all[name])
	if len(content) == 0 {
		return "nothing"
	}
	for range 1 + m.rng.IntN(4) {
		content[m.rng.IntN(len(content))] ^= byte(1 + m.rng.IntN(255))
	}
	m.cut = m.cut || isSegment(name) // it may have been the newest checkpoint's page
	m.put(name, content)
	return "flipped in " + name
}

func (m *hostileModel) otherKey() string {
	name := oneOf(m, []string{"approvals.key", "log.key", "mask.key", "page.key"})
	key := make([]byte, 32)
	for n := range key {
		key[n] = byte(m.rng.IntN(256))
	}
	m.put(name, key)
	return "another " + name
}

func (m *hostileModel) strangersApprovals() string {
	m.put(approvalsDB, m.stranger[approvalsDB])
	if m.chance(4) {
		return "a stranger's approvals.db"
	}
	m.put("approvals.key", m.stranger["approvals.key"])
	return "a stranger's approvals.db, with its key"
}

func (m *hostileModel) deletedFile() string {
	name := oneOf(m, sortedNames(m.read()))
	m.cut = m.cut || isSegment(name)
	must(m.t, os.Remove(filepath.Join(m.data, filepath.FromSlash(name))))
	return "without " + name
}

// approvalsFile edits approvals.db, which an older copy may be first.
func (m *hostileModel) approvalsFile(do func(*bbolt.Tx) error) string {
	said := "approvals.db"
	if m.chance(2) {
		said = m.olderApprovals()
	}
	if err := editFile(filepath.Join(m.data, approvalsDB), do); err != nil {
		return said + " not edited: " + err.Error()
	}
	return said
}

// statuses makes of what is in a file what an attacker would like there.
var statuses = strings.NewReplacer(`"uses":1`, `"uses":7`, `"Uses":1`, `"Uses":7`, `"status":"pending"`, `"status":"approved"`, `"status":"used_up"`, `"status":"approved"`, `"status":"revoked"`, `"status":"approved"`, `"status":"denied"`, `"status":"approved"`)

// withoutMACs puts a checksum in the place of each MAC: the format is known, and the key is not.
func (m *hostileModel) withoutMACs() string {
	table := crc32.MakeTable(crc32.Castagnoli)
	return "without MACs, " + m.approvalsFile(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("values"))
		return each(b, "", func(k, v []byte) error {
			text := statuses.Replace(string(v[sealed:]))
			crc := crc32.Update(crc32.Update(0, table, k), table, []byte(text))
			return b.Put(k, append(binary.BigEndian.AppendUint32(v[:8:8], crc), text...))
		})
	})
}

// sealed is where the text of a value begins: behind its revision and its MAC.
const sealed = 8 + 32

// each is of what was there when it began, of the keys with a prefix.
func each(b *bbolt.Bucket, prefix string, do func(k, v []byte) error) error {
	all := map[string][]byte{}
	_ = b.ForEach(func(k, v []byte) error { all[string(k)] = slices.Clone(v); return nil })
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if len(all[k]) < sealed || !strings.HasPrefix(k, prefix) {
			continue
		}
		if err := do([]byte(k), all[k]); err != nil {
			return err
		}
	}
	return nil
}

// editedApprovals changes values, moves one to another's place, or takes some away.
func (m *hostileModel) editedApprovals() string {
	prefix := oneOf(m, []string{"a/", "a/", "q/", "i/p/", "d/", "i/d/", "i/e/", "r/", "o/", "t/", "n/", "i/"})
	kind := m.rng.IntN(3)
	return fmt.Sprintf("edited %s %d of ", prefix, kind) + m.approvalsFile(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("values"))
		var last []byte
		return each(b, prefix, func(k, v []byte) error {
			defer func() { last = v }()
			switch {
			case kind == 0:
				return b.Put(k, append(slices.Clone(v[:sealed]), statuses.Replace(string(v[sealed:]))...))
			case kind == 1 && last != nil && m.chance(2):
				return b.Put(k, last)
			case kind == 2 && m.chance(2):
				return b.Delete(k)
			}
			return nil
		})
	})
}

// usesEdited has an approval that somebody gave, and another used, be used more often.
func (m *hostileModel) usesEdited() string {
	err := editFile(filepath.Join(m.data, approvalsDB), func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("values"))
		return each(b, "a/", func(k, v []byte) error {
			id := strings.TrimPrefix(string(k), "a/")
			if q := m.asked[id]; len(m.said[id]) > 0 && q.tool == "push" {
				m.next = append(m.next, q, q)
			}
			return b.Put(k, append(slices.Clone(v[:sealed]), strings.NewReplacer(`"uses":1`, `"uses":7`, `"Uses":1`, `"Uses":7`).Replace(string(v[sealed:]))...))
		})
	})
	return fmt.Sprintf("uses edited %v", err)
}

// unlisted takes what is open from the lists of what is open.
func (m *hostileModel) unlisted() string {
	return "unlisted in " + m.approvalsFile(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("values"))
		return each(b, "i/d/", func(k, _ []byte) error { return b.Delete(k) })
	})
}

// The log.

// evilLog is a log as who attacks it sees it.
type evilLog struct {
	data     string
	segments []string
	first    []uint64
	lines    map[uint64][]byte
	hashes   []tlog.Hash // all that are stored, in their order
	size     uint64
}

func readEvilLog(data string) *evilLog {
	l := &evilLog{data: data, lines: map[uint64][]byte{}}
	l.segments, _ = filepath.Glob(filepath.Join(data, format.LogDir, "????????.db"))
	slices.Sort(l.segments)
	for _, name := range l.segments {
		first := ^uint64(0)
		_ = look(name, func(tx *bbolt.Tx) error {
			_ = tx.Bucket([]byte(format.BucketRecords)).ForEach(func(k, v []byte) error {
				l.lines[binary.BigEndian.Uint64(k)] = slices.Clone(v)
				return nil
			})
			return tx.Bucket([]byte(format.BucketHashes)).ForEach(func(k, v []byte) error {
				first = min(first, binary.BigEndian.Uint64(k))
				l.size = max(l.size, binary.BigEndian.Uint64(k)+1)
				for ; len(v) >= tlog.HashSize; v = v[tlog.HashSize:] {
					l.hashes = append(l.hashes, tlog.Hash(v[:tlog.HashSize]))
				}
				return nil
			})
		})
		l.first = append(l.first, first)
	}
	return l
}

// look reads a bbolt file beside who may have it open, whatever is in it.
func look(name string, do func(*bbolt.Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	db, err := bbolt.Open(name, 0o400, &bbolt.Options{ReadOnly: true, Timeout: 1})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.View(do)
}

func (l *evilLog) ordered() (lines [][]byte) {
	for _, n := range slices.Sorted(maps.Keys(l.lines)) {
		lines = append(lines, l.lines[n])
	}
	return lines
}

// ReadHashes implements [tlog.HashReader].
func (l *evilLog) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		if i >= int64(len(l.hashes)) {
			return nil, fmt.Errorf("hash %d is not there", i)
		}
		out = append(out, l.hashes[i])
	}
	return out, nil
}

// last is what is written of the segment that can be continued, from a record on.
func (l *evilLog) last() (name string, first uint64) {
	for n := len(l.segments) - 1; n >= 0; n-- {
		if l.first[n] != ^uint64(0) {
			return l.segments[n], l.first[n]
		}
	}
	return "", 0
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// rewrite makes lines of the last segment anew from a sequence on, with the hashes that
// belong to them, and without the checkpoints that do not.
func (l *evilLog) rewrite(from uint64, lines [][]byte, checkpoints bool) error {
	name, first := l.last()
	if name == "" || from < first || from > l.size || tlog.StoredHashCount(int64(from)) > int64(len(l.hashes)) {
		return fmt.Errorf("not in the last segment")
	}
	_ = os.Chmod(name, 0o600)
	l.hashes = l.hashes[:tlog.StoredHashCount(int64(from))]
	return editFile(name, func(tx *bbolt.Tx) error {
		records, hashes, ids := tx.Bucket([]byte(format.BucketRecords)), tx.Bucket([]byte(format.BucketHashes)), tx.Bucket([]byte(format.BucketIDs))
		for n := from; n < l.size; n++ {
			_, _ = records.Delete(number(n)), hashes.Delete(number(n))
		}
		if checkpoints {
			signed := tx.Bucket([]byte(format.BucketCheckpoints))
			var gone [][]byte
			_ = signed.ForEach(func(k, _ []byte) error {
				if binary.BigEndian.Uint64(k) > from {
					gone = append(gone, slices.Clone(k))
				}
				return nil
			})
			for _, k := range gone {
				_ = signed.Delete(k)
			}
		}
		for i, line := range lines {
			n := from + uint64(i)
			stored, err := tlog.StoredHashes(int64(n), line, l)
			if err != nil {
				return err
			}
			l.hashes = append(l.hashes, stored...)
			var value []byte
			for _, h := range stored {
				value = append(value, h[:]...)
			}
			if err := hashes.Put(number(n), value); err != nil {
				return err
			}
			if err := records.Put(number(n), line); err != nil {
				return err
			}
			if id := field(line, "id"); id != "" {
				if err := ids.Put([]byte(id), number(n)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// field is the first member of a line with a name, which is a string.
func field(line []byte, name string) string {
	_, rest, _ := strings.Cut(string(line), `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// with is a line with other members.
func with(line string, members ...string) string {
	for n := 0; n < len(members); n += 2 {
		r := regexp.MustCompile(`"` + members[n] + `":("[^"]*"|[0-9]+)`)
		done := false
		line = r.ReplaceAllStringFunc(line, func(old string) string {
			if done {
				return old
			}
			done = true
			return `"` + members[n] + `":` + members[n+1]
		})
	}
	return line
}

func (m *hostileModel) newID() string {
	b := make([]byte, 8)
	binary.BigEndian.PutUint64(b, m.rng.Uint64())
	id := "01900000-0000-7000-8000-" + hex.EncodeToString(b)[:12]
	m.forged[id] = true
	return id
}

// The keys.

// olderKeys puts an older file of keys back, and the marks of then with it.
func (m *hostileModel) olderKeys() string {
	from := m.rng.IntN(len(m.past))
	for _, name := range []string{keys.File, keys.MarksFile} {
		if _, is := m.past[from][name]; is {
			m.putBack(from, name)
		} else {
			_ = os.Remove(filepath.Join(m.data, name))
		}
	}
	return fmt.Sprintf("the keys of stop %d", from)
}

// editedKeys has the file say that revoked keys are not, or gives a person's key a secret that somebody else knows.
func (m *hostileModel) editedKeys() string {
	text, err := os.ReadFile(filepath.Join(m.data, keys.File))
	if err != nil {
		return "nothing"
	}
	if m.chance(2) {
		m.put(keys.File, regexp.MustCompile(`,"revoked":"[^"]*"`).ReplaceAll(text, nil))
		return "no key revoked"
	}
	person := m.holder[oneOf(m, []string{"noah", "zoe"})]
	key := m.key[person]
	forged := "Bearer psk_" + idOf(key) + "_" + strings.Repeat("A", 43)
	m.put(keys.File, bytes.ReplaceAll(text, []byte(hashOf(key)), []byte(hashOf(forged))))
	name := "forged " + person
	m.key[name], m.forgeries = forged, append(m.forgeries, name)
	return "another secret of " + person
}

// The journal.

// editedJournal changes frames, with checksums that are right, and may have the segment fill itself again with what it has.
func (m *hostileModel) editedJournal() string {
	l := readEvilLog(m.data)
	name, _ := l.last()
	_ = os.Chmod(name, 0o600)
	kind, back := m.rng.IntN(4), uint64(m.rng.IntN(4))
	filled := uint64(0)
	err := editFile(name, func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(format.BucketMeta))
		value := slices.Clone(meta.Get([]byte(format.MetaJournal)))
		if len(value) != 24 {
			return errors.New("no journal counts")
		}
		filled = binary.BigEndian.Uint64(value[16:])
		binary.BigEndian.PutUint64(value[16:], filled-min(back, filled))
		return meta.Put([]byte(format.MetaJournal), value)
	})
	changed := 0
	for _, path := range journal.Paths(filepath.Join(m.data, format.LogDir)) {
		if b, readErr := os.ReadFile(path); readErr == nil && len(b) > 8192 {
			changed += m.editFrames(b, kind, filled-min(back, filled))
			must(m.t, os.WriteFile(path, b, 0o600))
		}
	}
	return fmt.Sprintf("%d frames edited %d, %d back of %d: %v", changed, kind, back, filled, err)
}

// editFrames alters the frames behind one, or takes them away, or adds one behind the last.
func (m *hostileModel) editFrames(b []byte, kind int, after uint64) (changed int) {
	table := crc32.MakeTable(crc32.Castagnoli)
	seed := crc32.Checksum(b[16:48], table)
	ids := regexp.MustCompile(`01[0-9a-f]{6}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	sum := func(frame []byte) {
		content := frame[96:][:binary.BigEndian.Uint32(frame[48:])]
		binary.BigEndian.PutUint32(frame[20:], crc32.Update(seed, table, content))
		binary.BigEndian.PutUint32(frame[16:], crc32.Update(seed, table, frame[20:64]))
		changed++
	}
	lies := func(frame []byte) { // its records are of somebody else from here on
		content := frame[96:][:binary.BigEndian.Uint32(frame[48:])]
		copy(content, ids.ReplaceAllStringFunc(string(content), func(string) string { return m.newID() }))
	}
	last := []byte(nil)
	for at := 8192; at+4096 <= len(b); at += 4096 {
		frame := b[at:]
		if string(frame[:16]) != string(b[32:48]) || 96+int(binary.BigEndian.Uint32(frame[48:])) > len(frame) {
			continue
		}
		last = frame
		switch number := binary.BigEndian.Uint64(frame[32:]); {
		case number <= after || !m.chance(2):
		case kind == 0:
			lies(frame)
			sum(frame)
		case kind == 1:
			clear(frame[:4096])
			changed++
		}
	}
	if last == nil || kind < 2 {
		return changed
	}
	size := (96 + int(binary.BigEndian.Uint32(last[48:])) + 4095) / 4096 * 4096
	if len(last) < 2*size {
		return changed
	}
	next := last[size:]
	copy(next[:size], last[:size])
	binary.BigEndian.PutUint64(next[24:], uint64(len(b)-len(next)))
	binary.BigEndian.PutUint64(next[32:], binary.BigEndian.Uint64(last[32:])+1)
	lies(next)
	sum(next)
	return changed
}

// editedIDs changes where the log finds records by their ids.
func (m *hostileModel) editedIDs() string {
	l := readEvilLog(m.data)
	name, _ := l.last()
	kind := m.rng.IntN(3)
	_ = os.Chmod(name, 0o600)
	err := editFile(name, func(tx *bbolt.Tx) error {
		ids := tx.Bucket([]byte(format.BucketIDs))
		all := map[string][]byte{}
		_ = ids.ForEach(func(k, v []byte) error { all[string(k)] = slices.Clone(v); return nil })
		keys := slices.Sorted(maps.Keys(all))
		for _, k := range keys {
			line := string(l.lines[binary.BigEndian.Uint64(all[k])])
			switch {
			case kind == 0 && strings.Contains(line, `"discharged"`), kind == 1 && strings.Contains(line, `"kind":"approval"`) && m.chance(2):
				if err := ids.Delete([]byte(k)); err != nil {
					return err
				}
			case kind == 2 && m.chance(3):
				if err := ids.Put([]byte(k), all[oneOf(m, keys)]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return fmt.Sprintf("ids edited %d %v", kind, err)
}

// step is a record of a step, made of another's.
func (m *hostileModel) step(l *evilLog, id, name string, n uint64, version int) string {
	for _, line := range slices.Backward(l.ordered()) {
		if strings.Contains(string(line), `"kind":"approval"`) && field(line, "event") == name {
			last := l.lines[l.size-1]
			s := with(string(line), "sequence", fmt.Sprint(n), "id", `"`+m.newID()+`"`, "time", `"`+field(last, "time")+`"`, "approval", `"`+id+`"`, "version", fmt.Sprint(version))
			return s
		}
	}
	return ""
}

// forgedSteps writes steps past the last checkpoint, as a crash would leave them.
func (m *hostileModel) forgedSteps() string {
	id := m.anID()
	for _, other := range m.ids { // rather one that waits, for one person
		if q := m.asked[other]; m.chance(2) && q.tool != "stop" && len(m.said[other]) == 0 && m.taken[other] == "" {
			id = other
		}
	}
	m.next = append(m.next, m.asked[id])
	l := readEvilLog(m.data)
	var lines [][]byte
	for _, name := range oneOf(m, [][]string{{approval.StepApprove, approval.StepApproved}, {approval.StepApproved}, {approval.StepApprove, approval.StepApprove, approval.StepApproved}, {approval.StepReopened}}) {
		if s := m.step(l, id, name, l.size+uint64(len(lines)), 7+len(lines)); s != "" {
			lines = append(lines, []byte(s))
		}
	}
	if id == "" || len(lines) == 0 {
		return "nothing"
	}
	said := ""
	if m.chance(2) {
		said = "; " + m.olderApprovals()
	}
	return fmt.Sprintf("%d steps of %s forged %v", len(lines), id, l.rewrite(l.size, lines, false)) + said
}

// alteredLine changes a record, and the hashes with it.
func (m *hostileModel) alteredLine() string {
	l := readEvilLog(m.data)
	if l.size < 2 {
		return "nothing"
	}
	_, first := l.last()
	at := first + uint64(m.rng.IntN(int(l.size-first)))
	var lines [][]byte
	for n := at; n < l.size; n++ {
		line := string(l.lines[n])
		if n == at {
			line = strings.NewReplacer(`"event":"denied"`, `"event":"approved"`, `"event":"deny"`, `"event":"approve"`, `"event":"revoked"`, `"event":"approved"`, `"event":"filed"`, `"event":"approved"`).Replace(line)
			line = strings.Replace(line, `"reason":"`, `"reason":"x`, 1)
		}
		lines = append(lines, []byte(line))
	}
	m.cut = true // without the checkpoints it is a log of then, with another end
	return fmt.Sprintf("record %d altered: %v", at, l.rewrite(at, lines, m.chance(2)))
}

// cutLog takes the end of the log away, with its checkpoints.
func (m *hostileModel) cutLog() string {
	l := readEvilLog(m.data)
	_, first := l.last()
	if l.size <= first+1 {
		return "nothing"
	}
	at := l.size - 1 - uint64(m.rng.IntN(int(min(10, l.size-first-1))))
	m.cut = true
	return fmt.Sprintf("cut at %d of %d: %v", at, l.size, l.rewrite(at, nil, true))
}

// removedLine takes the content of a record away that took something away, and has the
// log say that it was redacted.
func (m *hostileModel) removedLine() string {
	l := readEvilLog(m.data)
	name, first := l.last()
	var takes []uint64
	for n, line := range l.lines {
		s := string(line)
		if n >= first && (strings.Contains(s, `"discharged"`) || strings.Contains(s, `"event":"revoked"`) || strings.Contains(s, `"event":"denied"`) || strings.Contains(s, `"event":"deny"`) || strings.Contains(s, `"event":"used`)) {
			takes = append(takes, n)
		}
	}
	slices.Sort(takes)
	if len(takes) == 0 {
		return "nothing"
	}
	said := fmt.Sprintf("records %v removed", takes)
	if m.chance(3) { // nothing says why
		_ = os.Chmod(name, 0o600)
		_ = editFile(name, func(tx *bbolt.Tx) error {
			for _, n := range takes {
				_ = tx.Bucket([]byte(format.BucketRecords)).Delete(number(n))
			}
			return nil
		})
		return said + "; " + m.olderApprovals()
	}
	created, last := string(l.lines[0]), l.lines[l.size-1]
	var forged [][]byte
	for i, n := range takes {
		line := with(created, "sequence", fmt.Sprint(l.size+uint64(i)), "id", `"`+m.newID()+`"`, "time", `"`+field(last, "time")+`"`, "event", `"`+format.EventRedacted+`"`)
		before, after, _ := strings.Cut(line, `"details":{`)
		_, after, _ = strings.Cut(after, `}`)
		line = fmt.Sprintf(`%s"details":{"sequence":%d,"id":%q,"reason":"asked for"}%s`, before, n, field(l.lines[n], "id"), after)
		forged = append(forged, []byte(line))
	}
	err := l.rewrite(l.size, forged, false)
	_ = editFile(name, func(tx *bbolt.Tx) error {
		for _, n := range takes {
			_ = tx.Bucket([]byte(format.BucketRecords)).Delete(number(n))
		}
		return nil
	})
	return fmt.Sprintf("%s, as if redacted: %v; ", said, err) + m.olderApprovals()
}
