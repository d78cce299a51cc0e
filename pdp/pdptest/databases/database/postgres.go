package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

type postgres struct {
	*pgx.Conn
	prepared int // how many names of prepared statements were used
}

func connect(connection string) (func(context.Context, []statement) ([]answer, error), error) {
	conn, err := pgx.Connect(context.Background(), connection)
	if err != nil {
		return nil, err
	}
	p := &postgres{Conn: conn}
	return p.run, nil
}

// run sends statements without waiting for answers, but for those of the simple protocol. Each is a transaction of its own.
func (p *postgres) run(ctx context.Context, all []statement) ([]answer, error) {
	answers := make([]answer, 0, len(all))
	for len(all) > 0 {
		n := 0
		for n < len(all) && all[n].As != "simple" {
			n++
		}
		results, err := p.pipeline(ctx, all[:n])
		if err != nil {
			return nil, err
		}
		if all = all[n:]; len(all) > 0 {
			results = append(results, p.simple(ctx, all[0]))
			all = all[1:]
		}
		for _, r := range results {
			answers = append(answers, p.read(ctx, r))
		}
	}
	return answers, nil
}

// result is what a statement returned, as it came.
type result struct {
	fields []pgconn.FieldDescription
	rows   [][][]byte
	err    error
}

func (p *postgres) pipeline(ctx context.Context, all []statement) ([]result, error) {
	if len(all) == 0 {
		return nil, nil
	}
	pipe := p.PgConn().StartPipeline(ctx)
	results := make([]result, len(all))
	for _, s := range all {
		params := make([][]byte, len(s.Params))
		for n, text := range texts(s.Params) {
			if text != nil {
				params[n] = []byte(*text)
			}
		}
		if s.As == "prepared" {
			p.prepared++
			name := "s" + strconv.Itoa(p.prepared)
			pipe.SendPrepare(name, s.SQL, nil)
			pipe.SendQueryPrepared(name, params, nil, nil)
			pipe.SendPipelineSync()
			pipe.SendDeallocate(name)
		} else {
			pipe.SendQueryParams(s.SQL, params, nil, nil, []int16{pgx.BinaryFormatCode})
		}
		pipe.SendPipelineSync()
	}
	if err := pipe.Flush(); err != nil {
		return nil, err
	}
	for n, s := range all {
		syncs := 1
		if s.As == "prepared" {
			syncs = 2
		}
		for syncs > 0 {
			got, err := pipe.GetResults()
			if failed := (*pgconn.PgError)(nil); errors.As(err, &failed) {
				results[n].err = err
				continue
			} else if err != nil {
				return nil, err
			}
			switch got := got.(type) {
			case *pgconn.ResultReader:
				all := got.Read()
				results[n].fields, results[n].rows = all.FieldDescriptions, all.Rows
				if all.Err != nil {
					results[n].err = all.Err
				}
			case *pgconn.PipelineSync:
				syncs--
			}
		}
	}
	return results, pipe.Close()
}

func (p *postgres) simple(ctx context.Context, s statement) (r result) {
	params := []any{pgx.QueryExecModeSimpleProtocol}
	for _, text := range texts(s.Params) {
		params = append(params, text)
	}
	rows, err := p.Query(ctx, s.SQL, params...)
	if err != nil {
		return result{err: err}
	}
	defer rows.Close()
	for rows.Next() {
		r.fields = slices.Clone(rows.FieldDescriptions()) // the next query writes over these
		row := make([][]byte, len(rows.RawValues()))
		for n, raw := range rows.RawValues() {
			if raw != nil {
				row[n] = append([]byte{}, raw...)
			}
		}
		r.rows = append(r.rows, row)
	}
	r.err = rows.Err()
	return r
}

// texts returns parameters as texts: a list is that of an array.
func texts(params []any) []*string {
	all := make([]*string, len(params))
	for n, p := range params {
		switch p := p.(type) {
		case string:
			all[n] = &p
		case []any:
			list := quotedList(p)
			all[n] = &list
		}
	}
	return all
}

// read reads the values of a result by their types.
func (p *postgres) read(ctx context.Context, r result) (a answer) {
	for _, row := range r.rows {
		values := make([]any, len(row))
		for n, raw := range row {
			v, err := p.value(ctx, r.fields[n], raw)
			if err != nil && r.err == nil {
				r.err = err
			}
			values[n] = written(v)
		}
		a.Rows = append(a.Rows, values)
	}
	if r.err != nil {
		a = answer{Error: &fault{Text: r.err.Error()}}
		if failed := (*pgconn.PgError)(nil); errors.As(r.err, &failed) {
			a.Error.Code = failed.Code
		}
	}
	return a
}

func (p *postgres) value(ctx context.Context, f pgconn.FieldDescription, raw []byte) (any, error) {
	if raw == nil {
		return nil, nil
	}
	types := p.TypeMap()
	typ, known := types.TypeForOID(f.DataTypeOID)
	if !known { // such as that of an extension, or an array of it
		var name string
		var element *uint32
		err := p.QueryRow(ctx, "SELECT typname, nullif(CASE WHEN typcategory = 'A' THEN typelem END, 0) FROM pg_type WHERE oid = $1", f.DataTypeOID).Scan(&name, &element)
		if err != nil {
			return nil, err
		}
		typ = &pgtype.Type{Name: name, OID: f.DataTypeOID, Codec: pgtype.TextCodec{}}
		if element != nil {
			typ.Codec = &pgtype.ArrayCodec{ElementType: &pgtype.Type{Name: name + " element", OID: *element, Codec: pgtype.TextCodec{}}}
		}
		types.RegisterType(typ)
	}
	if _, is := typ.Codec.(*pgtype.ArrayCodec); is {
		var all pgtype.Array[*string]
		if err := types.Scan(f.DataTypeOID, f.Format, raw, &all); err != nil {
			return nil, err
		}
		a := array{Dims: []int32{}, Elements: all.Elements}
		for _, d := range all.Dims {
			a.Dims = append(a.Dims, d.Length)
		}
		return a, nil
	}
	v, err := typ.Codec.DecodeValue(types, f.DataTypeOID, f.Format, raw)
	switch v := v.(type) {
	case [16]byte:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:]), err
	case pgtype.InfinityModifier:
		return infinity(v), err
	case time.Time:
		return v.UTC(), err
	}
	return v, err
}
