package gate

// Drift is something of a server that is not as it is locked.
type Drift struct {
	// Server is the server's name here. Tool is the server's name of the tool, "" if no tool is meant.
	Server, Tool string
	// Change is the kind of change, as package lock names it. With is the other tool, if there is one: the new name of a
	// tool that is renamed.
	Change, With string
	// Locked and Found are digests, "" for what is not there.
	Locked, Found string
}
