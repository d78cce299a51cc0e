package console

// inbox is the page of the approval requests.
func (v *visit) inbox() { v.notFound() }
