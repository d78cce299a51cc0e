package front

import (
	"net/http"

	"policy-service/pdp/mcp/internal/rpc"
)

// unheard is the way back for a message that has no id: nothing is answered, whatever comes of it. Only who sends too much is told
// so. It has no w over the standard streams.
type unheard struct{ w http.ResponseWriter }

func (unheard) Interim(rpc.Message) error { return nil }

func (unheard) Alive() error { return nil }

func (unheard) Begin(string) {}

func (unheard) Stream() {}

// Final implements [reply.Reply].
func (u unheard) Final(status int, m rpc.Message) error {
	switch {
	case u.w == nil:
	case status == http.StatusTooManyRequests:
		e, _ := rpc.ReadError(m.Error) // it is ours
		data, _ := rpc.ParseObject(e.Data)
		u.w.Header().Set("Retry-After", string(data.Get("retry_after")))
		u.w.WriteHeader(status)
	default:
		u.w.WriteHeader(http.StatusAccepted)
	}
	return nil
}
