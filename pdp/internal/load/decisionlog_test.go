package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/journal"
)

// logOf is the log of a running service: its size by /readyz.
func logOf(ctx context.Context, service *process, s *setup) (state logState, err error) {
	ready, err := readiness(ctx, service.addr, s.authorization)
	if err != nil {
		return state, err
	}
	state.records = ready.Log.Size
	return state, nil
}

// ready is the answer of /readyz.
type ready struct {
	Bundle, Refused *struct {
		Digest string `json:"digest"`
	}
	Log *struct {
		Size uint64 `json:"size"`
	}
}

func readiness(ctx context.Context, addr, authorization string) (now ready, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return now, err
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return now, err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&now); err != nil {
		return now, fmt.Errorf("/readyz: %w", err)
	}
	if now.Log == nil || now.Bundle == nil {
		return now, errors.New("/readyz does not tell of the bundle and of the log")
	}
	return now, nil
}

// giveUp is for how long a log may stand still before what is not in it counts as
// dropped.
const giveUp = 2 * time.Second

// caughtUp waits until the log has all the records there must be, or has dropped some, and until its segments have what
// its journal has. In best effort records are written after the answer, and segments are filled after it in any mode.
// That is work of the slice all the same.
func caughtUp(ctx context.Context, service *process, s *setup, want uint64) (state logState, err error) {
	grew := time.Now()
	err = poll(ctx, patience, func() (bool, error) {
		now, err := logOf(ctx, service, s)
		if now.records > state.records {
			grew = time.Now()
		}
		state = now
		return state.records >= want || time.Since(grew) > giveUp, err
	})
	if err != nil {
		return state, err
	}
	frames, err := framesOf(s.data)
	if err != nil {
		return state, err
	}
	err = poll(ctx, patience, func() (bool, error) { return filled(s.data) >= frames, nil }) // of the files: the service has no work of it
	if err != nil {
		return state, fmt.Errorf("the log is not filled from its journal: %w", err)
	}
	state.commits = frames
	return state, nil
}

// filled is the number of the last frame that the segments have, as the last of them says: after the journal's id, in
// "journal" of the bucket "meta". It is 0 if that cannot be read, as while a page is being written.
func filled(data string) (last uint64) {
	segments, _ := segmentsOf(data)
	for _, name := range segments {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if at, err := f.Seek(0, io.SeekEnd); err == nil {
			last = max(last, filledOf(f, at))
		}
		_ = f.Close()
	}
	return last
}

func filledOf(f io.ReaderAt, size int64) uint64 {
	const id, number = 16, 8
	file, err := pages.Open(f, size)
	if err != nil {
		return 0
	}
	meta, found, err := file.Bucket("meta")
	if err != nil || !found {
		return 0
	}
	values, err := meta.Values("journal")
	if err != nil || len(values["journal"]) < id+number {
		return 0
	}
	return binary.BigEndian.Uint64(values["journal"][id:])
}

func segmentsOf(data string) ([]string, error) {
	return filepath.Glob(filepath.Join(data, "log", "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].db"))
}

// framesOf is how many frames the journal of a log has seen.
func framesOf(data string) (last uint64, err error) {
	for _, name := range journal.Paths(filepath.Join(data, "log")) {
		n, err := lastFrame(name)
		if err != nil {
			return 0, err
		}
		last = max(last, n)
	}
	return last, nil
}

// lastFrame is the number of the last frame in a file of a journal, 0 if it has none. The
// header has the round's mark at 32, and the number of the last frame before the round at
// 56. A frame begins with the mark, at the beginning of a block, and has its number at 32.
// (More of the format: pdp/internal/decisionlog/journal/format.go.)
func lastFrame(name string) (last uint64, err error) {
	all, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	const block = 4096
	mark := all[32:48]
	for at := 2 * block; at < len(all); at += block {
		if bytes.HasPrefix(all[at:], mark) {
			last = max(last, binary.BigEndian.Uint64(all[at+32:]))
		}
	}
	return max(last, binary.BigEndian.Uint64(all[56:])), nil
}
