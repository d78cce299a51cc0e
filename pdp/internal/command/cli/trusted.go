package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// LogKey reads the public key of a decision log that was kept elsewhere; "" if no file is given.
func (s Streams) LogKey(file Given) (string, error) { return s.trusted(file, "log key") }

// LogCheckpoint reads the checkpoint of a decision log that was kept elsewhere; "" if no file is given.
func (s Streams) LogCheckpoint(file Given) (string, error) {
	checkpoint, err := s.trusted(file, "log checkpoint")
	if strings.Count(checkpoint, "\n\n") > 1 { // the standard output of the service has them all: no forgery
		err = fmt.Errorf("%s has more than one checkpoint; write one into a file of its own, such as the last: tail -n 6 %[1]s", file)
	}
	return checkpoint, err
}

// trusted reads a key or a checkpoint. An empty file must not come to mean that none was given.
func (s Streams) trusted(file Given, from string) (string, error) {
	if file == "" {
		return "", nil
	}
	content, err := ReadSmall(string(file), s.In)
	if err == nil && len(bytes.TrimSpace(content)) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w; try what policy-service %s printed", file, err, from)
	}
	return string(content), nil
}
