package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits for a time, to some 50 µs. A sleep of the runtime may be a millisecond late: it waits for times and for
// connections at once, by epoll_wait(2), which counts in milliseconds. Here the time is a file to wait for.
type alarm struct {
	timer *os.File
	fd    int
	rung  *[8]byte // how often
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return alarm{}, os.NewSyscallError("timerfd_create", err)
	}
	return alarm{os.NewFile(uintptr(fd), "alarm"), fd, new([8]byte)}, nil
}

func (a alarm) wait(until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		return nil
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	_, err := a.timer.Read(a.rung[:])
	return err
}

func (a alarm) close() error {
	if a.timer == nil {
		return nil
	}
	return a.timer.Close()
}
