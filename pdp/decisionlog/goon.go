package decisionlog

import (
	"context"
)

type goOnKey struct{}

// WithTurns has whoever reads much of a log ask before each part of it, which is of a few
// hundred records, whether to go on: so that of several readers each has its turn. The
// reading ends with the error of goOn.
func WithTurns(ctx context.Context, goOn func(context.Context) error) context.Context {
	return context.WithValue(ctx, goOnKey{}, goOn)
}

// mayGoOn is asked between two parts, while nothing is held open.
func mayGoOn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if goOn, ok := ctx.Value(goOnKey{}).(func(context.Context) error); ok {
		return goOn(ctx)
	}
	return nil
}
