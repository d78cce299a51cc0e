// Package database makes no promise: it is for the tests of this module alone. It starts SQLite and PostgreSQL, which judge the
// conditions that package filter makes: a row must be selected exactly if the decision about it allows. The question about a row is
// made here, from what a driver reads, and by nothing that makes conditions.
package database

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/pdptest/judged"
	"policy-service/pdp/pdptest/night"
)

// DB is a database of one test. It may be used by several goroutines, of which one at a time is served.
type DB struct {
	t      testing.TB
	mu     sync.Mutex
	in     *json.Encoder
	out    *json.Decoder
	said   *bytes.Buffer // on its standard error
	ended  chan struct{}
	sqlite bool
}

// Ask is a statement, with its parameters: each is nil, a string or a []string.
type Ask struct {
	SQL    string `json:"sql"`
	Params []any  `json:"params,omitempty"`
	As     As     `json:"as,omitempty"`
}

// As is how PostgreSQL gets a statement: by default in the extended protocol, with texts for parameters and the binary form for results.
// SQLite prepares each.
type As string

// Prepared is a named prepared statement, with texts for parameters and results. Simple is the simple protocol: the driver writes the
// parameters into the statement, as behind a pooler of connections.
const (
	Prepared As = "prepared"
	Simple   As = "simple"
)

// Answer is what a statement returned.
type Answer struct {
	Rows []Row
	Err  error // an [*Error]
}

// Row has the values that the driver read: nil, bool, int64, float64, string (which SQLite may have stored with any bytes), []byte,
// time.Time, [Infinity], or [Array]. A uuid is a string.
type Row []any

// Infinity is a timestamp after all others, or before: 1 or -1.
type Infinity int

// Array is one of PostgreSQL, whose elements are text, or are read as such. An empty one has no dimension.
type Array struct {
	Dims     []int
	Elements []*string
}

// Error is one that the database has returned.
type Error struct{ Code, Text string } // SQLSTATE, or the number that SQLite has for it

func (e *Error) Error() string { return e.Text }

// SQLite opens a database in memory.
func SQLite(t testing.TB) *DB {
	t.Helper()
	db := open(t, "sqlite")
	db.sqlite = true
	return db
}

// Postgres makes a database of one test in a server that all tests of a program share. The test is skipped where there is no PostgreSQL,
// and fails in CI. It has the extension citext where the machine has that. Its sessions are in no zone that a program would expect.
func Postgres(t testing.TB) *DB {
	t.Helper()
	night.Other(t, "databases")
	server.Do(func() { server.dir, server.stdin, server.err = start(t) })
	if os.IsNotExist(server.err) && os.Getenv("CI") != "true" {
		t.Skip(server.err)
	}
	if server.err != nil {
		t.Fatal(server.err)
	}
	connection := "host=" + server.dir + " user=postgres dbname="
	name := fmt.Sprint("t", server.databases.Add(1))
	whole := open(t, "postgres", connection+"postgres")
	whole.Exec("CREATE DATABASE " + name + " TEMPLATE template0")
	t.Cleanup(func() { whole.Exec("DROP DATABASE " + name + " WITH (FORCE)") })
	db := open(t, "postgres", connection+name)
	db.All(Ask{SQL: "CREATE EXTENSION citext"})
	return db
}

var server struct {
	sync.Once
	dir       string
	stdin     io.Closer // open until this program ends: the server ends with it
	err       error
	databases atomic.Int64
}

// start starts PostgreSQL. The error is [os.ErrNotExist] where there is none.
func start(t testing.TB) (dir string, stdin io.Closer, err error) {
	candidates, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", nil, err
	}
	slices.SortFunc(candidates, func(a, b string) int { // the newest first: 9 is older than 15
		of := func(bin string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
			return n
		}
		return of(b) - of(a)
	})
	if said, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append([]string{strings.TrimSpace(string(said))}, candidates...)
	}
	n := slices.IndexFunc(candidates, func(bin string) bool {
		for _, program := range []string{"initdb", "postgres"} {
			if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
				return false
			}
		}
		return true
	})
	if n < 0 {
		return "", nil, &os.PathError{Op: "find", Path: "initdb and postgres of PostgreSQL", Err: os.ErrNotExist}
	}
	if dir, err = os.MkdirTemp("", "pg"); err != nil {
		return "", nil, err
	}
	command := exec.Command(judged.ProgramOf(t, "databases", "database"), "serve", candidates[n], dir)
	said := new(bytes.Buffer)
	command.Stderr = said
	stdin, err = command.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err == nil && !bufio.NewScanner(stdout).Scan() {
		_ = command.Wait()
		err = fmt.Errorf("PostgreSQL did not start: %s", said)
	}
	return dir, stdin, err
}

// open starts a client, which ends with the test.
func open(t testing.TB, args ...string) *DB {
	t.Helper()
	command := exec.Command(judged.ProgramOf(t, "databases", "database"), args...)
	db := &DB{t: t, said: new(bytes.Buffer), ended: make(chan struct{})}
	command.Stderr = db.said
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout = to
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	go func() {
		_ = command.Wait()
		close(db.ended)
	}()
	db.in, db.out = json.NewEncoder(stdin), json.NewDecoder(bufio.NewReaderSize(out, 1<<20))
	db.out.UseNumber()
	t.Cleanup(func() {
		_ = stdin.Close()
		select {
		case <-db.ended:
		case <-time.After(10 * time.Second): // it is in a statement
			_ = command.Process.Kill()
			<-db.ended
		}
		_ = out.Close()
	})
	return db
}

// All puts statements, each of which is a transaction of its own. It takes one round trip.
func (db *DB) All(asks ...Ask) []Answer {
	db.t.Helper()
	var lines []struct {
		Rows  [][]any
		Error *Error
	}
	db.mu.Lock()
	err := db.in.Encode(asks)
	if err == nil {
		err = db.out.Decode(&lines)
	}
	db.mu.Unlock()
	if err != nil {
		<-db.ended
		db.t.Fatalf("%v: %s", err, db.said)
	}
	answers := make([]Answer, len(lines))
	for n, line := range lines {
		if line.Error != nil {
			answers[n].Err = line.Error
		}
		for _, values := range line.Rows {
			row := make(Row, len(values))
			for n, v := range values {
				if row[n], err = valueOf(v); err != nil {
					db.t.Fatal(err)
				}
			}
			answers[n].Rows = append(answers[n].Rows, row)
		}
	}
	return answers
}

// Exec puts statements that must not fail.
func (db *DB) Exec(statements ...string) {
	db.t.Helper()
	asks := make([]Ask, len(statements))
	for n, s := range statements {
		asks[n].SQL = s
	}
	for n, a := range db.All(asks...) {
		if a.Err != nil {
			db.t.Fatalf("%s: %v", statements[n], a.Err)
		}
	}
}

// Query puts one statement. Each parameter is nil, a string or a []string.
func (db *DB) Query(sql string, params ...any) ([]Row, error) {
	db.t.Helper()
	a := db.All(Ask{SQL: sql, Params: params})[0]
	return a.Rows, a.Err
}

// QueryPrepared puts one statement as a named prepared one.
func (db *DB) QueryPrepared(sql string, params ...any) ([]Row, error) {
	db.t.Helper()
	a := db.All(Ask{SQL: sql, Params: params, As: Prepared})[0]
	return a.Rows, a.Err
}

// valueOf reads a value from a line.
func valueOf(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return v.Int64()
	case map[string]any:
		for kind, v := range v {
			text, _ := v.(string)
			switch kind {
			case "real":
				return strconv.ParseFloat(text, 64)
			case "text":
				b, err := hex.DecodeString(text)
				return string(b), err
			case "blob":
				return hex.DecodeString(text)
			}
			// The others are taken from their JSON once more.
			b, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			switch kind {
			case "time":
				var at [2]int64
				err := json.Unmarshal(b, &at)
				return time.Unix(at[0], at[1]).UTC(), err
			case "infinity":
				var i Infinity
				err := json.Unmarshal(b, &i)
				return i, err
			case "array":
				var a Array
				err := json.Unmarshal(b, &a)
				return a, err
			}
			return nil, fmt.Errorf("a value of a type that is not read: %s", b)
		}
	}
	return v, nil
}
