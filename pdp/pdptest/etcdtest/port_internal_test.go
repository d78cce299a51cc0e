package etcdtest

import (
	"net"
	"strings"
	"testing"
	"time"
)

// A member whose port was taken while it did not run starts once the port is free.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Members: 1})
	c.Kill(0)
	taken, err := net.Listen("tcp", c.members[0].client)
	if err != nil {
		t.Fatal(err)
	}
	before := len(c.Said(0))
	go func() {
		for late := time.Now().Add(time.Minute); !strings.Contains(c.Said(0)[before:], "address already in use") && time.Now().Before(late); {
			<-time.After(time.Millisecond)
		}
		_ = taken.Close()
	}()
	c.Restart(0)
	c.Settled()
	if !strings.Contains(c.Said(0)[before:], "address already in use") {
		t.Error("its port was not taken")
	}
}
