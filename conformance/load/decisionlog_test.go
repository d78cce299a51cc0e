package main

import (
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
)

// logOf is the log of a running service: its size as /readyz tells it, and the number
// of transactions in its files.
func logOf(ctx context.Context, service *process, s *setup) (state logState, err error) {
	if state.records, err = logSize(ctx, service.addr, s.authorization); err != nil {
		return state, err
	}
	state.commits, err = commits(s.data)
	return state, err
}

func logSize(ctx context.Context, addr, authorization string) (uint64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return 0, err
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var ready struct {
		Log *struct {
			Size uint64 `json:"size"`
		} `json:"log"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&ready); err != nil {
		return 0, fmt.Errorf("/readyz: %w", err)
	}
	if ready.Log == nil {
		return 0, errors.New("/readyz does not tell the size of the log")
	}
	return ready.Log.Size, nil
}

// giveUp is for how long a log may stand still before what is not in it counts as
// dropped.
const giveUp = 2 * time.Second

// caughtUp waits until the log has all the records there must be, or has dropped some.
// In best effort they are written after the answer, and are work of the slice all the same.
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
	return state, err
}

// commits is how many transactions the segments of a log have seen. bbolt numbers them
// in the meta pages of its file, the first two: u64 at 64 and at 64 behind the page
// size, which is u32 at 24. A new file begins at 1. (More of the format: boltfile/pages.)
func commits(data string) (sum uint64, err error) {
	segments, err := filepath.Glob(filepath.Join(data, "log", "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].db"))
	if err != nil {
		return 0, err
	}
	for _, name := range segments {
		n, err := lastTransaction(name)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += n - 1
	}
	return sum, nil
}

func lastTransaction(name string) (uint64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	const headerAndMeta = 16 + 64
	var page [headerAndMeta]byte
	last := uint64(1)
	for at, turn := int64(0), 0; turn < 2; turn++ {
		if _, err := f.ReadAt(page[:], at); errors.Is(err, io.EOF) {
			return last, nil // it is being made
		} else if err != nil {
			return 0, err
		}
		last = max(last, binary.LittleEndian.Uint64(page[64:]))
		at = int64(binary.LittleEndian.Uint32(page[24:]))
	}
	return last, nil
}
