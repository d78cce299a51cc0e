//go:build !linux

package main

import (
	"errors"
	"time"
)

func cpu(int) (time.Duration, error) {
	return 0, errors.New("what another process uses is read on Linux only; try it there")
}
