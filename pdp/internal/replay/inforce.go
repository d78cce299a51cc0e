package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// ErrNoBundle: no record says which bundle was in force, or its files are not here.
var ErrNoBundle = errors.New("the bundle in force is not known")

// InForce is the bundle that was in force at the end of a log. It reads the log once.
func InForce(ctx context.Context, from Source) (*Side, error) {
	digest := ""
	look := func(r *record.Recorded) (err error) {
		digest, err = r.NamedBundle()
		return err
	}
	var err error
	if log, is := from.(ofLog); is {
		err = log.Events(ctx, look, format.EventBundleLoaded)
	} else {
		err = eachLoaded(ctx, from, look)
	}
	if err != nil {
		return nil, err
	}
	files, err := from.Bundle(digest)
	switch {
	case err != nil:
		return nil, err
	case digest == "":
		return nil, fmt.Errorf("%w: no record says that one was loaded", ErrNoBundle)
	case files == nil:
		return nil, fmt.Errorf("%w: the files of %s are not here", ErrNoBundle, digest)
	}
	b, err := recorder.Compile(files, "")
	if err != nil {
		return nil, err
	}
	return SideOf(b, files), nil
}

// eachLoaded looks at the records that say that a bundle was loaded.
func eachLoaded(ctx context.Context, from Source, look func(*record.Recorded) error) error {
	for r, err := range from.Records(ctx) {
		if err != nil {
			return err
		}
		if !bytes.Contains(r.Line, []byte(format.EventBundleLoaded)) {
			continue
		}
		one, err := record.Parse(r.Line)
		if err == nil && one.Kind == format.KindAdmin && one.Event == format.EventBundleLoaded {
			err = look(one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
