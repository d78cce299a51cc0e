package evaluation

import "time"

// HintMember is the member of a resource's properties that has what the server of a tool says about approvals of it, in
// the form that gateways give it. Nobody vouches for what a server says.
const HintMember = "approval_hint"

// Hint is what of [HintMember] a PDP goes by.
type Hint struct {
	// Timeout is how long an approval is to wait for people, in whole seconds; zero says nothing about it.
	Timeout time.Duration
	// Message is what the server says to people, "" is nothing.
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
