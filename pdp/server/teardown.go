package server

import (
	"context"
	"errors"
	"fmt"
)

// teardown undoes a start. Each step is added the moment the thing it undoes
// exists, so that a start that fails half-way leaves nothing behind.
type teardown []step

type step struct {
	name string
	undo func(context.Context) error
}

func (t *teardown) add(name string, undo func(context.Context) error) {
	*t = append(*t, step{name, undo})
}

// run undoes everything, last in first out, once. A step that fails does not
// keep the others from running.
func (t *teardown) run(ctx context.Context) error {
	var errs []error
	for len(*t) > 0 {
		last := (*t)[len(*t)-1]
		*t = (*t)[:len(*t)-1]
		if err := last.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}

// closing is a step that does not wait.
func closing(do func() error) func(context.Context) error {
	return func(context.Context) error { return do() }
}
