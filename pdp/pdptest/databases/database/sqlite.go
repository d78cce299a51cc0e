package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"

	"modernc.org/sqlite"
)

func openSQLite() (func(context.Context, []statement) ([]answer, error), error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(context.Background()) // another one would have a database of its own
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, all []statement) ([]answer, error) {
		answers := make([]answer, len(all))
		for n, s := range all {
			rows, err := querySQLite(ctx, conn, s)
			answers[n].Rows = rows
			if err != nil {
				answers[n] = answer{Error: &fault{Text: err.Error()}}
				if failed := (*sqlite.Error)(nil); errors.As(err, &failed) {
					answers[n].Error.Code = strconv.Itoa(failed.Code())
				}
			}
		}
		return answers, nil
	}, nil
}

func querySQLite(ctx context.Context, conn *sql.Conn, s statement) ([][]any, error) {
	params := make([]any, len(s.Params))
	for n, p := range s.Params {
		if list, ok := p.([]any); ok {
			text, err := json.Marshal(list)
			if err != nil {
				return nil, err
			}
			p = string(text)
		}
		params[n] = p
	}
	prepared, err := conn.PrepareContext(ctx, s.SQL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = prepared.Close() }()
	rows, err := prepared.QueryContext(ctx, params...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all [][]any
	for rows.Next() {
		row, at := make([]any, len(names)), make([]any, len(names))
		for n := range row {
			at[n] = &row[n]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, err
		}
		for n := range row {
			row[n] = written(row[n])
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
