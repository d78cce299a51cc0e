// Database puts statements to SQLite or to PostgreSQL, for tests: see package database of our module, which requires neither driver.
//
//	database sqlite              opens a database in memory
//	database postgres CONNECTION connects to a server
//	database serve BINDIR DIR    starts a PostgreSQL of its own in DIR
//
// The first two answer each line of the standard input, a list of statements, by a line with what each returned. The third says
// "ready" when the server answers on its socket in DIR, and removes DIR in the end. All end with the process that started them:
// when their standard input does.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A statement is one of SQL, with a list of parameters: each is null, a string, or a list of strings.
type statement struct {
	SQL    string `json:"sql"`
	Params []any  `json:"params"`
	// As says how PostgreSQL gets it: in the extended protocol with texts for parameters and the binary form for results unless it is
	// "prepared", which is a named prepared statement with texts for both, or "simple", the simple protocol, in which the driver writes
	// the parameters into the statement.
	As string `json:"as"`
}

// answer is what a statement returned.
type answer struct {
	Rows  [][]any `json:"rows,omitempty"`
	Error *fault  `json:"error,omitempty"`
}

// fault is an error that a database has returned.
type fault struct {
	Code string `json:"code"` // SQLSTATE, or the number that SQLite has for it
	Text string `json:"text"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "database:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "sqlite":
		do, err := openSQLite()
		if err != nil {
			return err
		}
		return serveLines(do)
	case len(args) == 2 && args[0] == "postgres":
		do, err := connect(args[1])
		if err != nil {
			return err
		}
		return serveLines(do)
	case len(args) == 3 && args[0] == "serve":
		return serve(args[1], args[2])
	}
	return fmt.Errorf("the arguments %q say nothing", args)
}

// serveLines answers lines until the standard input ends.
func serveLines(do func(context.Context, []statement) ([]answer, error)) error {
	in, out := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20)), bufio.NewWriterSize(os.Stdout, 1<<20)
	to := json.NewEncoder(out)
	for {
		var all []statement
		if err := in.Decode(&all); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answers, err := do(context.Background(), all)
		if err == nil {
			err = to.Encode(answers)
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// infinity is a timestamp that is none.
type infinity int

// array is one of PostgreSQL.
type array struct {
	Dims     []int32   `json:"dims"`
	Elements []*string `json:"elements"`
}

// written returns a value as it stands in a line: null, a boolean, a number for an integer, a string for a text of UTF-8, and an object
// with one member for all others.
func written(v any) any {
	switch v := v.(type) {
	case nil, bool, int64:
		return v
	case int32:
		return int64(v)
	case int16:
		return int64(v)
	case float64:
		return map[string]string{"real": strconv.FormatFloat(v, 'g', -1, 64)}
	case float32:
		return map[string]string{"real": strconv.FormatFloat(float64(v), 'g', -1, 32)}
	case string:
		if !utf8.ValidString(v) {
			return map[string]string{"text": hex.EncodeToString([]byte(v))}
		}
		return v
	case []byte:
		return map[string]string{"blob": hex.EncodeToString(v)}
	case time.Time: // years that RFC 3339 does not have are read, too
		return map[string][]int64{"time": {v.Unix(), int64(v.Nanosecond())}}
	case infinity:
		return map[string]int{"infinity": int(v)}
	case array:
		return map[string]array{"array": v}
	}
	return map[string]string{"other": fmt.Sprintf("%T %v", v, v)}
}

// quotedList returns a list as the text of an array in PostgreSQL.
func quotedList(elements []any) string {
	texts := make([]string, len(elements))
	for n, e := range elements {
		text, _ := e.(string)
		texts[n] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	return "{" + strings.Join(texts, ",") + "}"
}
