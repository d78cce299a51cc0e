//go:build !linux

package main

import "time"

// alarm waits for a time, to a millisecond or so.
type alarm struct{}

func newAlarm() (alarm, error) { return alarm{}, nil }

func (alarm) wait(until time.Time) error {
	time.Sleep(time.Until(until))
	return nil
}

func (alarm) close() error { return nil }
