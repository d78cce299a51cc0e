package console

// request is the page of one approval request.
func (v *visit) request() { v.notFound() }

// decide approves, denies or delegates.
func (v *visit) decide() { v.notFound() }

// revoke takes an approval back.
func (v *visit) revoke() { v.notFound() }
