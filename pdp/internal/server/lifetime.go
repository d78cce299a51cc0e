package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// lifetime is the one start of a server, and what undoes it. Each step is added the moment the thing it undoes exists,
// so that a start that fails half-way leaves nothing behind.
type lifetime struct {
	mu      sync.Mutex // is held during a start and a stop
	started bool
	steps   []step
}

type step struct {
	name string
	undo func(context.Context) error
}

// start runs the start, and undoes it if it fails.
func (l *lifetime) start(ctx context.Context, start func(context.Context) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return errors.New("the server was started before; make a new one")
	}
	l.started = true
	err := start(ctx)
	if err != nil {
		err = errors.Join(err, l.run(context.WithoutCancel(ctx)))
	}
	return err
}

func (l *lifetime) stop(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.run(ctx)
}

// add has a stop undo something. Its errors begin with "stopping NAME".
func (l *lifetime) add(name string, undo func(context.Context) error) {
	l.steps = append(l.steps, step{name, undo})
}

// background runs something until the stop, which waits for its end.
func (l *lifetime) background(name string, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.add(name, func(ctx context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	go func() {
		defer close(done)
		run(ctx)
	}()
}

// run undoes everything once, the last step first. A step that fails does not keep the others from running.
func (l *lifetime) run(ctx context.Context) error {
	var errs []error
	for len(l.steps) > 0 {
		last := l.steps[len(l.steps)-1]
		l.steps = l.steps[:len(l.steps)-1]
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
