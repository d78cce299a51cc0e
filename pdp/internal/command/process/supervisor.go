package process

import (
	"log/slog"
	"net"
	"os"
)

// Supervisor is the program that started this one and waits to hear that it answers, as systemd does for Type=notify. The
// zero value is none.
type Supervisor struct {
	socket string
	log    *slog.Logger
}

// TakeSupervisor takes the supervisor's address out of the environment: no child is to speak for this process.
func TakeSupervisor(log *slog.Logger) Supervisor {
	const name = "NOTIFY_SOCKET"
	s := Supervisor{os.Getenv(name), log}
	_ = os.Unsetenv(name)
	return s
}

// Ready says that the process answers.
func (s Supervisor) Ready() { s.tell("READY=1") }

// Stopping says that the process ends.
func (s Supervisor) Stopping() { s.tell("STOPPING=1") }

// tell says how the process is. That it cannot is no reason to end: an address may have been inherited from a supervisor
// that asks nothing of this process. An address that begins with @ is in no file system.
func (s Supervisor) tell(state string) {
	if s.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		s.log.Warn("the supervisor does not hear: a start by systemd fails after TimeoutStartSec=; give the unit RestrictAddressFamilies= with AF_UNIX", "socket", s.socket, "state", state, "error", err)
	}
}
