package filter

import (
	"slices"
	"strings"

	"policy-service/pdp/internal/bundle"
)

// Verify returns a SELECT on the catalog of a database. It returns a row for each column that is not as filters.yaml maps it.
func Verify(b *bundle.Bundle, d Dialect) string {
	var rows []string
	for _, m := range bundle.ByName(b.Mappings) {
		add := func(table []string, c bundle.Column) {
			schema := "NULL"
			if len(table) > 1 {
				schema = "'" + table[0] + "'"
			}
			word := map[bool]string{true: "TRUE", false: "FALSE"}
			rows = append(rows, "  ("+strings.Join([]string{schema, "'" + table[len(table)-1] + "'", "'" + c.Name + "'", "'" + string(c.Type) + "'",
				word[c.NotNull], word[m.Strict]}, ", ")+")") // names have neither quotes nor backslashes
		}
		id := m.ID
		id.NotNull = m.Strict
		add(m.Table, id)
		if m.Tenant.Name != "" {
			add(m.Table, m.Tenant)
		}
		var walk func(map[string]*bundle.Mapped)
		walk = func(members map[string]*bundle.Mapped) {
			for _, of := range members {
				switch {
				case of.Members != nil:
					walk(of.Members)
				case of.Rows != nil:
					value := of.Rows.Value
					value.NotNull = of.NoNullElement
					add(of.Rows.Table, bundle.Column{Name: of.Rows.Key, Type: m.ID.Type})
					add(of.Rows.Table, value)
				default:
					add(m.Table, of.Column)
				}
			}
		}
		walk(m.Attributes)
	}
	slices.Sort(rows)
	problem := map[Dialect]string{Postgres: inPostgres, SQLite: inSQLite}[d]
	return "WITH mapped (schema_name, table_name, column_name, mapped_as, is_not_null, is_strict) AS (VALUES\n" + strings.Join(slices.Compact(rows), ",\n") + "\n), found AS (\n" +
		problem + ")\nSELECT coalesce(schema_name || '.', '') || table_name AS \"table\", column_name AS \"column\", problem FROM found WHERE problem IS NOT NULL ORDER BY 1, 2;\n"
}

// inPostgres finds the problem of each column. Operators on integers of any size agree, and varchar is compared as text.
const inPostgres = `  SELECT mapped.*, CASE
    WHEN c.oid IS NULL THEN 'there is no such table or view'
    WHEN a.attnum IS NULL THEN 'there is no such column'
    WHEN format_type(a.atttypid, NULL) <> ALL (CASE mapped_as
      WHEN 'text' THEN ARRAY['text', 'character varying'] WHEN 'bigint' THEN ARRAY['bigint', 'integer', 'smallint'] WHEN 'millis' THEN ARRAY['bigint']
      WHEN 'timestamptz' THEN ARRAY['timestamp with time zone'] ELSE ARRAY[mapped_as] END)
      THEN 'it is ' || format_type(a.atttypid, a.atttypmod) || ', and mapped as ' || mapped_as
    WHEN NOT k.collisdeterministic THEN 'its collation ' || k.collname || ' takes different texts for equal ones'
    WHEN is_not_null AND NOT a.attnotnull AND c.relkind IN ('v', 'm') THEN 'the catalog does not say of a view whether it may be NULL'
    WHEN is_not_null AND NOT a.attnotnull THEN 'it may be NULL' END AS problem
  FROM mapped
  LEFT JOIN pg_catalog.pg_class c ON c.oid = to_regclass(coalesce(quote_ident(schema_name) || '.', '') || quote_ident(table_name))
  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_collation k ON k.oid = a.attcollation
`

// inSQLite finds the problem of each column. SQLite has no catalog of collations, so the text of the table is looked at: there a
// column ends at the next comma. Only a STRICT table keeps values of other types out.
var inSQLite = `  SELECT mapped.*, CASE
    WHEN t.name IS NULL THEN 'there is no such table or view'
    WHEN c.name IS NULL THEN 'there is no such column'
    WHEN mapped_as IN ('timestamptz', 'text[]', 'uuid[]') THEN 'SQLite has no ' || mapped_as
    WHEN mapped_as IN ('text', 'uuid') AND (upper(c.type) LIKE '%INT%' OR upper(c.type) NOT LIKE '%CHAR%' AND upper(c.type) NOT LIKE '%CLOB%' AND upper(c.type) NOT LIKE '%TEXT%')
      OR mapped_as NOT IN ('text', 'uuid') AND upper(c.type) NOT LIKE '%INT%' AND (mapped_as <> 'boolean' OR upper(c.type) NOT LIKE 'BOOL%')
      THEN 'it is ' || CASE c.type WHEN '' THEN 'of no type' ELSE c.type END || ', and mapped as ' || mapped_as
    WHEN is_strict AND NOT t.strict THEN 'the table is not STRICT, so it may have values of other types'
    WHEN mapped_as IN ('text', 'uuid') AND definition LIKE '% collate %' AND definition NOT LIKE '% collate binary %' THEN 'its collation takes different texts for equal ones'
    WHEN is_not_null AND NOT c."notnull" AND t.type = 'view' THEN 'the catalog does not say of a view whether it may be NULL'
    WHEN is_not_null AND NOT c."notnull" THEN 'it may be NULL' END AS problem
  FROM (SELECT mapped.*, substr(behind, 1, instr(behind || ',', ',') - 1) || ' ' AS definition FROM (
    SELECT mapped.*, substr(text, nullif(instr(text, ' ' || lower(column_name) || ' '), 0)) AS behind FROM (
      SELECT mapped.*, ` + spaced(`substr(s.sql, instr(s.sql, '('))`) + ` AS text FROM mapped
      LEFT JOIN sqlite_schema s ON s.type = 'table' AND s.name = table_name COLLATE NOCASE AND coalesce(schema_name, 'main') = 'main' COLLATE NOCASE) mapped) mapped) mapped
  LEFT JOIN pragma_table_list t ON t.name = table_name COLLATE NOCASE AND t.schema = coalesce(schema_name, 'main') COLLATE NOCASE
  LEFT JOIN pragma_table_xinfo(table_name, schema_name) c ON c.name = column_name COLLATE NOCASE
`

// spaced returns an expression for a text in lower case, with a space for each sign around a name.
func spaced(text string) string {
	for _, sign := range []string{"char(9)", "char(10)", "char(13)", "'('", "')'", `'"'`, "'`'", "'['", "']'"} {
		text = "replace(" + text + ", " + sign + ", ' ')"
	}
	return "lower(replace(" + text + ", ',', ', '))"
}
