package tools

// shownName is a tool whose clients call it otherwise than its server does.
type shownName struct{ server, tool, shown string }

func (k *checker) checkNames() {}
