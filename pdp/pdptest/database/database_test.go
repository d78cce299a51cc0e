package database_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/database"
)

func each(t *testing.T, try func(t *testing.T, db *database.DB, postgres bool)) {
	t.Run("sqlite", func(t *testing.T) { try(t, database.SQLite(t), false) })
	t.Run("postgres", func(t *testing.T) { try(t, database.Postgres(t), true) })
}

// one asks for a row, in each way that a statement can be put.
func one(t *testing.T, db *database.DB, sql string, params ...any) database.Row {
	t.Helper()
	var first []database.Row
	for _, as := range []database.As{"", database.Prepared, database.Simple} {
		a := db.All(database.Ask{SQL: sql, Params: params, As: as})[0]
		if a.Err != nil || len(a.Rows) != 1 {
			t.Fatalf("%s as %q: %v, %v", sql, as, a.Rows, a.Err)
		}
		if first == nil {
			first = a.Rows
		} else if !reflect.DeepEqual(a.Rows, first) {
			t.Errorf("%s as %q: %v, and %v as texts and the binary form", sql, as, a.Rows, first)
		}
	}
	return first[0]
}

func text(s string) *string { return &s }

// Values of each type are read as they are, by any protocol.
func TestValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *database.DB, postgres bool) {
		values := map[string]any{
			"NULL": nil, "'a'": "a", "''": "", `'"''\é'`: `"'\é`, "9007199254740993": int64(9007199254740993),
			"-9223372036854775807 - 1": int64(math.MinInt64),
		}
		if postgres {
			values["9223372036854775807::bigint"], values["7::integer"], values["7::smallint"] = int64(math.MaxInt64), int64(7), int64(7)
			values["true"], values["false"] = true, false
			values["1.5::float8"], values[`'\x00ff'::bytea`] = 1.5, []byte{0, 255}
			values["'ABCD0000-0000-0000-0000-00000000000f'::uuid"] = "abcd0000-0000-0000-0000-00000000000f"
			values["'2026-01-02 03:04:05.123456+01'::timestamptz"] = time.Date(2026, 1, 2, 2, 4, 5, 123456000, time.UTC)
			values["'0001-01-01 00:00:00+00 BC'::timestamptz"] = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
			values["'infinity'::timestamptz"], values["'-infinity'::timestamptz"] = database.Infinity(1), database.Infinity(-1)
			values["'{}'::text[]"] = database.Array{Dims: []int{}, Elements: []*string{}}
			values["ARRAY['a', NULL, 'NULL', '{,\"']"] = database.Array{Dims: []int{4}, Elements: []*string{text("a"), nil, text("NULL"), text(`{,"`)}}
			values["ARRAY[['a', 'b', 'c'], ['d', 'e', NULL]]"] = database.Array{Dims: []int{2, 3}, Elements: []*string{text("a"), text("b"), text("c"), text("d"), text("e"), nil}}
			values["ARRAY['abcd0000-0000-0000-0000-00000000000F'::uuid]"] = database.Array{Dims: []int{1}, Elements: []*string{text("abcd0000-0000-0000-0000-00000000000f")}}
			values["'a'::char(3)"], values["'Ab'::citext"] = "a  ", "Ab"
			values["ARRAY['Ab'::citext, NULL]"] = database.Array{Dims: []int{2}, Elements: []*string{text("Ab"), nil}}
		} else {
			values["9223372036854775807"], values["1.5"], values["x'00ff'"] = int64(math.MaxInt64), 1.5, []byte{0, 255}
			values["'a' || char(0) || 'b'"], values["CAST(x'61ff' AS TEXT)"] = "a\x00b", "a\xff"
		}
		for sql, want := range values {
			if got := one(t, db, "SELECT "+sql)[0]; !reflect.DeepEqual(got, want) && fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
				t.Errorf("%s: read %#v, and it is %#v", sql, got, want)
			}
		}
		if postgres { // whose text is not read as a time
			rows, err := db.Query("SELECT '20000-01-01 00:00:00+00'::timestamptz")
			if want := time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC); err != nil || rows[0][0] != any(want) {
				t.Errorf("read %v, %v", rows, err)
			}
		}
	})
}

// Parameters are texts, or lists, by any protocol: PostgreSQL has arrays, and SQLite JSON.
func TestParameters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *database.DB, postgres bool) {
		hostile := []string{"", "NULL", `a"b\c`, "{x,y}", "é'; --", " ", "$1"}
		if postgres {
			row := one(t, db, "SELECT $2::text, $1::text, $3::bigint + 1, $4::text[], $5::text[], $6::text IS NULL", "x", "y", "9007199254740992", hostile, []string{}, nil)
			var elements []*string
			for _, s := range hostile {
				elements = append(elements, &s)
			}
			want := database.Row{"y", "x", int64(9007199254740993), database.Array{Dims: []int{len(hostile)}, Elements: elements}, database.Array{Dims: []int{}}, true}
			if fmt.Sprintf("%#v", row[:3]) != fmt.Sprintf("%#v", want[:3]) || !reflect.DeepEqual(row[3], want[3]) || row[5] != true {
				t.Errorf("read %#v", row)
			}
			return
		}
		row := one(t, db, "SELECT ?2, ?1, CAST(?3 AS INTEGER) + 1, (SELECT group_concat('<' || value || '>', '') FROM json_each(?4)), ?5, ?6 IS NULL, ?1",
			"x", "y\x00z", "9007199254740992", hostile, []string{}, nil)
		want := database.Row{"y\x00z", "x", int64(9007199254740993), "<" + strings.Join(hostile, "><") + ">", "[]", int64(1), "x"}
		if !reflect.DeepEqual(row, want) {
			t.Errorf("read %#v", row)
		}
	})
}

// An error is one of its statement alone, and has the code of the database.
func TestErrors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *database.DB, postgres bool) {
		code, first := "1", "?1"
		if postgres {
			code, first = "42703", "$1::text"
		}
		for _, as := range []database.As{"", database.Prepared, database.Simple} {
			answers := db.All(database.Ask{SQL: "CREATE TABLE t (a text)", As: as}, database.Ask{SQL: "SELECT b FROM t", As: as}, database.Ask{SQL: "INSERT INTO t VALUES (" + first + ")", Params: []any{"v"}, As: as},
				database.Ask{SQL: "SELECT a FROM t", As: as}, database.Ask{SQL: "DROP TABLE t", As: as})
			var failed *database.Error
			if !errors.As(answers[1].Err, &failed) || failed.Code != code {
				t.Errorf("as %q the error is %#v", as, answers[1].Err)
			}
			for n, a := range answers {
				if n != 1 && a.Err != nil || n == 3 && !reflect.DeepEqual(a.Rows, []database.Row{{"v"}}) {
					t.Errorf("as %q, statement %d: %v, %v", as, n, a.Rows, a.Err)
				}
			}
		}
	})
	t.Run("raised", func(t *testing.T) { // after some rows
		db := database.Postgres(t)
		for _, as := range []database.As{"", database.Prepared, database.Simple} {
			answers := db.All(database.Ask{SQL: "SELECT 1 / (3 - n) FROM generate_series(1, 5) n", As: as}, database.Ask{SQL: "SELECT 7", As: as})
			if answers[0].Err == nil || answers[1].Err != nil || answers[1].Rows[0][0] != int64(7) {
				t.Errorf("as %q: %v", as, answers)
			}
		}
	})
}

// A collation that takes texts for equal which differ can be made: S13 needs one.
func TestCollations(t *testing.T) {
	t.Parallel()
	db := database.Postgres(t)
	db.Exec("CREATE COLLATION careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
		"CREATE TABLE t (a text COLLATE careless, b citext, c char(8))", "INSERT INTO t VALUES ('Ab', 'Ab', 'Ab')")
	rows, err := db.Query("SELECT a = 'aB', b = 'aB', c = 'Ab  ', a::text COLLATE \"C\" = 'aB' FROM t")
	if err != nil || !reflect.DeepEqual(rows, []database.Row{{true, true, true, false}}) {
		t.Errorf("%v, %v", rows, err)
	}
}

// table has an attribute of each kind.
func table(postgres bool) *database.Table {
	uuid, at, list := "uuid", "timestamptz", "text[]"
	t := &database.Table{Name: `"app"."docs"`, Key: "n", Tenant: "tenant", ID: database.Field{Column: "id", Type: uuid}, RequiredRecords: [][]string{{"label"}, {"other", "deep"}}}
	if !postgres {
		t.Name, t.ID.Type, at = `"docs"`, "text", "millis"
	}
	t.Fields = []database.Field{
		{Path: []string{"owner"}, Kind: "entity", Column: "owner", Type: "bigint"},
		{Path: []string{"size"}, Kind: "long", Column: "size", Type: "bigint"},
		{Path: []string{"public"}, Kind: "bool", Column: "public", Type: "boolean"},
		{Path: []string{"made"}, Kind: "datetime", Column: "made", Type: at},
		{Path: []string{"label", "category"}, Kind: "string", Column: "category", Type: "text"},
		{Path: []string{"other", "a"}, Kind: "string", Column: "other_a", Type: "text"},
		{Path: []string{"other", "deep", "b"}, Kind: "string", Column: "other_b", Type: "text"},
		{Path: []string{"tags"}, Kind: "set", Element: "string", Rows: &database.Rows{Table: strings.Replace(t.Name, "docs", "tags", 1), Key: "document", Value: "tag", Type: "text"}},
	}
	if postgres {
		t.Fields = append(t.Fields, database.Field{Path: []string{"shared"}, Kind: "set", Element: "entity", Column: "shared", Type: list})
	}
	return t
}

// The question about a row has what section 1 of the design of filters says.
func TestQuestions(t *testing.T) {
	t.Parallel()
	const id = "abcd0000-0000-0000-0000-00000000000f"
	each(t, func(t *testing.T, db *database.DB, postgres bool) {
		at := func(text string, millis int64) string {
			if postgres {
				return "'" + text + "'"
			}
			return fmt.Sprint(millis)
		}
		docs := table(postgres)
		if postgres {
			db.Exec("CREATE SCHEMA app", "CREATE TABLE app.docs (n bigint, id uuid, tenant text, owner bigint, size bigint, public boolean, made timestamptz, category text, other_a text, other_b text, shared text[])",
				"CREATE TABLE app.tags (document uuid, tag text)")
		} else {
			db.Exec("CREATE TABLE docs (n, id TEXT, tenant TEXT, owner INTEGER, size INTEGER, public BOOLEAN, made TIMESTAMP, category TEXT, other_a TEXT, other_b TEXT)",
				"CREATE TABLE tags (document TEXT, tag TEXT)")
		}
		wants := map[int64]string{}
		denied := map[int64]string{}
		n := int64(0)
		add := func(want, why string, values map[string]string) {
			t.Helper()
			n++
			row := map[string]string{"n": fmt.Sprint(n), "id": "'" + id + "'", "tenant": "'acme'"}
			for name, v := range values {
				row[name] = v
			}
			var names, all []string
			for name, v := range row {
				names, all = append(names, name), append(all, v)
			}
			db.Exec("INSERT INTO " + docs.Name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(all, ", ") + ")")
			wants[n], denied[n] = want, why
		}
		tags := `,"tags":["b",null]}`
		db.Exec("INSERT INTO "+docs.Fields[7].Rows.Table+" VALUES ('"+id+"', 'b'), ('"+id+"', NULL), ('00000000-0000-0000-0000-000000000001', 'c'), (NULL, 'd')",
			"INSERT INTO "+docs.Fields[7].Rows.Table+" VALUES ('00000000-0000-0000-0000-000000000002', '')")
		add(`{"label":{}`+tags, "", nil)
		add(`{"label":{},"tags":["c"]}`, "", map[string]string{"id": "'00000000-0000-0000-0000-000000000001'"})
		add(`{"label":{},"tags":[]}`, "", map[string]string{"id": "'00000000-0000-0000-0000-000000000003'"})
		add(`{"label":{},"owner":"-7","public":true,"size":9007199254740993`+tags, "", map[string]string{"owner": "-7", "size": "9007199254740993", "public": "true"})
		add(`{"label":{},"public":false`+tags, "", map[string]string{"public": "false"})
		add(`{"label":{"category":""},"other":{"a":"x","deep":{}}`+tags, "", map[string]string{"category": "''", "other_a": "'x'"})
		add(`{"label":{},"other":{"deep":{"b":"é\""}}`+tags, "", map[string]string{"other_b": `'é"'`})
		add(`{"label":{},"made":"2026-01-02T03:04:05.123Z"`+tags, "", map[string]string{"made": at("2026-01-02 03:04:05.123999+00", 1767323045123)})
		add(`{"label":{},"made":"1969-12-31T23:59:59.998Z"`+tags, "", map[string]string{"made": at("1969-12-31 23:59:59.998001+00", -2)})
		add(`{"label":{},"made":"0001-01-01T00:00:00.000Z"`+tags, "", map[string]string{"made": at("0001-01-01 00:00:00+00", -62135596800000)})
		add(`{"label":{},"made":"9999-12-31T23:59:59.999Z"`+tags, "", map[string]string{"made": at("9999-12-31 23:59:59.999999+00", 253402300799999)})
		add("", "malformed: made", map[string]string{"made": at("10000-01-01 00:00:00+00", 253402300800000)})
		add("", "malformed: made", map[string]string{"made": at("0001-12-31 23:59:59.999999+00 BC", -62135596800001)})
		add("", "it is of the tenant other", map[string]string{"tenant": "'other'"})
		add("", "it is of the tenant Acme", map[string]string{"tenant": "'Acme'"})
		add("", "it is of the tenant <nil>", map[string]string{"tenant": "NULL"})
		add("", "malformed: no id", map[string]string{"id": "NULL"})
		if postgres {
			add("", "malformed: made", map[string]string{"made": "'infinity'"})
			add("", "malformed: made", map[string]string{"made": "'-infinity'"})
			add(`{"label":{},"shared":[]`+tags, "", map[string]string{"shared": "'{}'"})
			add(`{"label":{},"shared":["x",null,"NULL"]`+tags, "", map[string]string{"shared": "ARRAY['x', NULL, 'NULL']"})
			add(`{"label":{},"shared":["x","y"]`+tags, "", map[string]string{"shared": "'[5:6]={x,y}'"})
			add(`{"label":{},"shared":[["x","y"],["z",null]]`+tags, "", map[string]string{"shared": "ARRAY[['x', 'y'], ['z', NULL]]"})
			add(`{"label":{},"shared":[[["x"],["y"]],[["z"],["w"]]]`+tags, "", map[string]string{"shared": "ARRAY[[['x'], ['y']], [['z'], ['w']]]"})
		} else {
			add("", "malformed: category", map[string]string{"category": "'a' || char(0) || 'b'"})
			add("", "malformed: category", map[string]string{"category": "CAST(x'ff' AS TEXT)"})
			add("", "malformed: category", map[string]string{"category": "x'61'"})
			add("", "malformed: size", map[string]string{"size": "1.5"})
			add("", "malformed: size", map[string]string{"size": "'x'"})
			add("", "malformed: owner", map[string]string{"owner": "x'31'"})
			add("", "malformed: public", map[string]string{"public": "2"})
			add("", "malformed: made", map[string]string{"made": "'2026-01-01'"})
			add("", "malformed: ", map[string]string{"id": "x'61'"})
			add("", "malformed: tag of", map[string]string{"id": "'bad'"})
			db.Exec("INSERT INTO tags VALUES ('bad', x'61')")
		}
		about := map[string]any{"subject": map[string]any{"type": "user", "id": "u"}, "action": map[string]any{"name": "read"}, "resource": map[string]any{"type": "document"}, "context": map[string]any{"x": 1}}
		questions := db.Questions(docs, about, "acme")
		if len(questions) != int(n) {
			t.Errorf("%d questions about %d rows", len(questions), n)
		}
		for _, q := range questions {
			key, _ := q.Key.(int64)
			want := ""
			if denied[key] == "" {
				want = `{"action":{"name":"read"},"context":{"x":1},"resource":{"id":"` + q.ID + `","properties":` + wants[key] + `,"type":"document"},"subject":{"id":"u","type":"user"}}`
			}
			if string(q.Body) != want || !strings.HasPrefix(q.Denied, denied[key]) || (q.Denied == "") != (denied[key] == "") {
				t.Errorf("row %d:\n%s\n%s\ndenied: %q, want %q", key, q.Body, want, q.Denied, denied[key])
			}
		}
		if about["resource"].(map[string]any)["id"] != nil {
			t.Error("the question of all rows has an id now")
		}
	})
}
