package front

import (
	"net/http"

	"policy-service/pdp/internal/rpc"
)

// silentReply is the reply to a message that has no id: it sends no answer. Only a sender that sends too much gets a status
// that says so. Over the standard streams w is nil.
type silentReply struct{ w http.ResponseWriter }

func (silentReply) Interim(rpc.Message) error { return nil }

func (silentReply) Alive() error { return nil }

func (silentReply) Begin(string) {}

func (silentReply) Stream() {}

// Final implements [reply.Reply].
func (u silentReply) Final(status int, m rpc.Message) error {
	switch {
	case u.w == nil:
	case status == http.StatusTooManyRequests:
		e, _ := rpc.ReadError(m.Error) // the gateway made this error
		data, _ := rpc.ParseObject(e.Data)
		u.w.Header().Set("Retry-After", string(data.Get("retry_after")))
		u.w.WriteHeader(status)
	default:
		u.w.WriteHeader(http.StatusAccepted)
	}
	return nil
}
