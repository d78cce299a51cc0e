package export

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Find finds a record by its id in an export, or in any lines of records, and resolves it with the
// record of its batch, which stands before it, or in which it is a question. It checks no proof: package verify does.
func Find(in io.Reader, id string) (record.Recorded, error) {
	own := []byte(`"id":` + quoted(id))
	dot := max(0, strings.LastIndexByte(id, '.'))
	batchID, isItem := id[:dot], dot > 0
	shared := []byte(`"id":` + strings.TrimSuffix(quoted(batchID), `"`))
	var batch record.Record
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, format.MaxLine+len("\r\n")+1)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte(format.ExportPrefix)) || !bytes.Contains(line, own) && !(isItem && bytes.Contains(line, shared)) {
			continue // only lines that have the id somewhere are read
		}
		r, err := record.Parse(line)
		switch {
		case err != nil:
			return record.Recorded{}, fmt.Errorf("line %d: %w", n, err)
		case r.ID == id:
			return record.Resolve(bytes.Clone(line), batch)
		case isItem && r.Kind == format.KindPossible && slices.Contains(record.PossibleIDsOf(id), r.ID):
			r.Line = bytes.Clone(line)
			return r.Question(id)
		case r.ID == batchID && r.Kind == format.KindBatch:
			batch = record.Record{Sequence: r.Sequence, Line: bytes.Clone(line)}
		}
	}
	if err := lines.Err(); err != nil {
		return record.Recorded{}, err
	}
	return record.Recorded{}, fmt.Errorf("record %q: %w", id, segment.ErrNotFound)
}

func quoted(text string) string {
	b, _ := jsontext.AppendQuote(nil, text) // what is not UTF-8 is no id
	return string(b)
}
