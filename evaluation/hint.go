package evaluation

import "time"

// HintMember is the member of a resource's properties with the words of a tool's server about approvals of it, in
// the form that gateways give it. The words of a server are not vouched for.
const HintMember = "approval_hint"

// Hint is the part of [HintMember] that a PDP goes by.
type Hint struct {
	// Timeout is how long an approval is to wait for people, in whole seconds; zero says nothing about it.
	Timeout time.Duration
	// Message is the server's text for people, "" is none.
	Message string
}

// mostSeconds is how many seconds a [time.Duration] can hold.
const mostSeconds = int64(1<<63-1) / int64(time.Second)

// HintOf reads it in the properties of a resource. A member of another form says nothing.
func HintOf(properties Object) (h Hint) {
	v, _ := properties.Get(HintMember)
	timeout, _ := v.Object().Get("timeout")
	if n, whole := timeout.Scaled(0); whole && n >= 1 && n <= mostSeconds {
		h.Timeout = time.Duration(n) * time.Second
	}
	if message, _ := v.Object().Get("message"); message.Kind() == String {
		h.Message = message.Text()
	}
	return h
}
