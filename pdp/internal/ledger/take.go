package ledger

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Take copies the values that the ledger of one process had into an engine that several share, before any of them opens it. Origin
// is the name of the process's log, and size its length: the values know all of its records.
//
// It refuses values of which something may be on record or not, and an engine that has others. If it ends in the middle, no
// ledger can be opened there, and the next Take begins anew. One that has ended is not done again.
func Take(from State, to Engine, form Form, origin string, size uint64) (err error) {
	form.ready()
	if err := to.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	t := taking{to: to, form: &form, name: "taken from " + origin + " "}
	if done, err := t.begin(); done || err != nil {
		return err
	}
	if err := t.clear(); err != nil {
		return err
	}
	return form.in(func(tx *Tx) {
		for key, read := range tx.scan("", "", "~", false) {
			var text jsontext.Value
			switch {
			case strings.HasPrefix(key, form.of(prefixOutbox)), strings.HasPrefix(key, form.of(prefixReserved)):
				tx.Fail(fmt.Errorf("%w: the log does not say yet whether %q is on record; see why, and try again", form.Errors.Unavailable, key))
			case key != KeyFormat && read(&text):
				tx.Fail(t.put(key, text))
			}
		}
		after, err := json.Marshal(known{size})
		tx.Fail(err)
		if tx.err == nil {
			tx.Fail(t.put(form.of(prefixOrigins)+origin, after))
		}
		if tx.err == nil {
			tx.Fail(t.flush())
		}
		if tx.err == nil {
			tx.Fail(t.end())
		}
	})(from)
}

// taking is a [Take]. Each writes the token anew, and goes on as long as no other one does.
type taking struct {
	to    Engine
	form  *Form
	name  string // that the values get begins so
	token uint64 // its revision
	some  map[string]jsontext.Value
	bytes int
}

const keyTaking = prefixClaims + "taking"

// takenAtOnce is how many keys one transaction has, besides the token and the format.
const takenAtOnce = MostKeys - 2

// firstTaken is the first value of each key. No owner reads it, so that a copy of it, put in the place of a later value, grants nothing.
var firstTaken = jsontext.Value(`[[]]`)

// begin writes the token. Done says that another Take has ended.
func (t *taking) begin() (done bool, err error) {
	err = t.to.View(t.form.in(func(tx *Tx) {
		var is general
		if done = tx.Get(KeyFormat, &is) > 0; done && (len(is.Names) == 0 || !strings.HasPrefix(is.Names[0].Name, t.name)) {
			tx.Fail(fmt.Errorf("%w: there are %s already, not %s", ErrInvalid, t.form.Items, t.name))
		}
		if done || tx.Get(keyTaking, new(bool)) > 0 {
			return
		}
		for key := range tx.scan("", "", "~", false) {
			tx.Fail(fmt.Errorf("%w: there is %q already", ErrInvalid, key))
		}
	}))
	if done || err != nil {
		return done, err
	}
	value, err := t.form.seal(keyTaking, true, place{})
	if err == nil {
		t.token, err = t.to.Write(Transaction{If: map[string]uint64{KeyFormat: 0}, Puts: map[string][]byte{keyTaking: value}})
	}
	return false, err
}

// end has the values count, by their format.
func (t *taking) end() error {
	value, err := t.form.seal(KeyFormat, general{Format: t.form.Version, Names: []naming{{Name: t.name + rand.Text()}}}, place{})
	if err == nil {
		_, err = t.write(map[string]uint64{KeyFormat: 0}, map[string][]byte{KeyFormat: value, keyTaking: nil})
	}
	return err
}

func (t *taking) write(holds map[string]uint64, puts map[string][]byte) (revision uint64, err error) {
	holds[keyTaking] = t.token
	return t.to.Write(Transaction{If: holds, Puts: puts})
}

// clear removes all that a Take before has left.
func (t *taking) clear() error {
	for {
		gone := map[string][]byte{}
		err := t.to.View(func(s State) error {
			return s.Range("", "~", false, func(key string, _ []byte, _ Meta) bool {
				if key != keyTaking {
					gone[key] = nil
				}
				return len(gone) < takenAtOnce
			})
		})
		if err == nil && len(gone) > 0 {
			_, err = t.write(map[string]uint64{}, gone)
		}
		if err != nil || len(gone) == 0 {
			return err
		}
	}
}

// put writes a value, together with others.
func (t *taking) put(key string, text jsontext.Value) error {
	size := len(key) + sha256.Size + len(text)
	if len(t.some) == takenAtOnce || t.bytes+size > MostBytes-1<<10 {
		if err := t.flush(); err != nil {
			return err
		}
	}
	if t.some == nil {
		t.some = map[string]jsontext.Value{}
	}
	t.some[key] = text
	t.bytes += size
	return nil
}

// flush writes the first value of each key, and then the value.
func (t *taking) flush() error {
	is := Meta{}
	for is.Version < 2 && len(t.some) > 0 {
		holds, puts := map[string]uint64{}, map[string][]byte{}
		for key, text := range t.some {
			if is.Version == 0 {
				text = firstTaken
			}
			value, err := t.form.seal(key, text, is.after())
			if err != nil {
				return err
			}
			holds[key], puts[key] = is.Revision, value
		}
		revision, err := t.write(holds, puts)
		if err != nil {
			return err
		}
		if is.Version == 0 {
			is.Created = revision
		}
		is.Revision, is.Version = revision, is.Version+1
	}
	t.some, t.bytes = nil, 0
	return nil
}
