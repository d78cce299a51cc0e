package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"testing"
)

// Whoever reads much asks between any two parts, and ends where it may not go on.
func TestReadersAskWhetherToGoOn(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{})
	const parts = 4
	var entries []record.Entry
	for n := range parts * segment.MaxRecords {
		entries = append(entries, entry(fmt.Sprint(n)))
	}
	mustAppend(t, l, entries...)
	for name, read := range map[string]func(context.Context) error{
		"records": func(ctx context.Context) error {
			for _, err := range l.Records(ctx, 0, l.Size()) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"query": func(ctx context.Context) error {
			_, err := l.Query(ctx, Query{Limit: parts * segment.MaxRecords})
			return err
		},
	} {
		asked, enough := 0, errors.New("enough")
		ctx := segment.WithTurns(t.Context(), func(context.Context) error { asked++; return nil })
		if err := read(ctx); err != nil || asked < parts {
			t.Errorf("%s: asked %d times, error %v", name, asked, err)
		}
		ctx = segment.WithTurns(t.Context(), func(context.Context) error { return enough })
		if err := read(ctx); !errors.Is(err, enough) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
