package main

import (
	"bytes"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/pdptest/night"
)

// TestIdleMemory: with the starter bundle the program takes little memory when it idles, and keeps little after it was busy.
// The second bound is of its own memory alone, without the pages of the log that the kernel keeps, once Go has collected the
// garbage by itself. Both are of a machine that gives huge pages only on demand: elsewhere the kernel rounds some
// areas up to 2 MiB, which the program does not use.
func TestIdleMemory(t *testing.T) {
	night.Measures(t)
	const idle = 60                                                         // MiB
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil { // for this process, and for those that it starts
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "addr")
	server := exec.CommandContext(t.Context(), filepath.Join(built(t), "policy-service"),
		"serve", "--listen", "127.0.0.1:0", "--addr-file", file, "--policies", starter(t), "--data", filepath.Join(t.TempDir(), "data"))
	server.Stderr = &bytes.Buffer{}
	must(t, server.Start())
	v := &victim{addr: awaitAddr(t, server, file, server.Stderr), pid: server.Process.Pid}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: crashClients}}
	defer client.CloseIdleConnections()
	if ask(client, v.addr, false) == nil {
		t.Fatal("no answer")
	}
	v.awaitMemory(t, "VmRSS:", idle)

	var clients sync.WaitGroup
	for range crashClients {
		clients.Go(func() {
			for range 10_000 / crashClients {
				if ask(client, v.addr, false) == nil {
					t.Error("no answer")
					return
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d MiB while it is busy", v.own(t))
	v.awaitMemory(t, "RssAnon:", idle)
}

// awaitMemory waits until the server takes no more memory than so many MiB.
func (v *victim) awaitMemory(t *testing.T, what string, most int) {
	t.Helper()
	var err error
	for range 6 { // minutes: a process that allocates nothing is collected each two, and gives the room back after the second time
		if err = untilDone(t.Context(), what, func() (bool, error) { return v.memory(t, what) <= most, nil }); err == nil {
			return
		}
	}
	t.Fatalf("%v: it is %d MiB, want at most %d; of its own %d, of files %d", err, v.memory(t, what), most,
		v.memory(t, "RssAnon:"), v.memory(t, "RssFile:"))
}
