package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"policy-service/pdp/internal/decisionlog/segment"
	"slices"
	"testing"
	"time"
)

// look is a snapshot that somebody exported, to have again.
type look struct {
	moment  segment.Moment
	tenants []string
	bytes   []byte
}

func (k *kept) settled(tenants []string) look {
	k.Helper()
	s, err := k.log.Settled()
	k.ok(err)
	out, err := exportAll(k.Context(), s.For(tenants))
	k.ok(err)
	k.ok(JudgeExport(out))
	return look{s.Moment(), tenants, out}
}

func exportAll(ctx context.Context, s *segment.Snapshot) ([]byte, error) {
	var b bytes.Buffer
	_, err := WriteExport(ctx, s, &b, ExportOptions{})
	return b.Bytes(), err
}

// again asserts that a look is read again to the byte, or not at all.
func (k *kept) again(l look) (changed bool) {
	k.Helper()
	s, err := k.log.At(l.moment)
	k.ok(err)
	s = s.For(l.tenants)
	out, err := exportAll(k.Context(), s)
	changed = errors.Is(err, segment.ErrChanged)
	switch {
	case changed:
	case err != nil:
		k.Error(err)
	case !bytes.Equal(out, l.bytes):
		k.Errorf("at %+v for %v:\n%s\nbefore\n%s", l.moment, l.tenants, out, l.bytes)
	}
	return changed
}

// Whatever a removal has done of its steps, what is exported then is exported again
// to the byte, or refused: for everybody, and for each tenant.
func TestSettledAcrossRemovals(t *testing.T) {
	t.Parallel()
	redaction := func(k *kept) []func(context.Context) error {
		return k.redaction("a-2").steps()
	}
	retention := func(k *kept) []func(context.Context) error {
		k.ok(k.log.Rotate(t.Context()))
		return k.retirement(1).steps()
	}
	readers := [][]string{nil, {"default"}, {"acme"}}
	for name, steps := range map[string]func(*kept) []func(context.Context) error{"redaction": redaction, "retention": retention} {
		t.Run(name, func(t *testing.T) {
			k := keepLog(t)
			k.append("a-1", "a-2", "a-7")
			_, err := k.log.Checkpoint(t.Context())
			k.ok(err)
			var looks []look
			for _, step := range append(steps(k), func(context.Context) error { return nil }) {
				for _, reader := range readers {
					looks = append(looks, k.settled(reader))
				}
				for _, l := range looks {
					k.again(l)
				}
				k.ok(step(t.Context()))
			}
			for i, l := range looks {
				before := i < len(looks)-len(readers)
				// Of another tenant's redaction nothing shows.
				want := before && (name == "retention" || !slices.Equal(l.tenants, []string{"acme"}))
				if got := k.again(l); got != want {
					t.Errorf("look %d of %v: changed is %v, want %v", i, l.tenants, got, want)
				}
			}
		})
	}
}

// Content that goes while it is exported ends the export.
func TestExportEndsWhereContentGoes(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2", "a-7")
	_, err := k.log.Checkpoint(t.Context())
	k.ok(err)
	for tenant, want := range map[string]error{"default": segment.ErrChanged, "acme": nil} {
		s, err := k.log.Settled()
		k.ok(err)
		s = s.For([]string{tenant})
		if tenant == "default" {
			k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
		} else {
			k.ok(k.log.Redact(t.Context(), "", "a-1", "on request"))
		}
		if _, err := exportAll(t.Context(), s); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", tenant, err, want)
		}
	}
}

func TestAtNoMoment(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1")
	now := k.newMoment()
	for _, m := range []segment.Moment{{}, {Size: now.Size}, {Size: now.Size, Time: now.Time.Add(1)}, {Size: now.Size + 5, Time: now.Time}} {
		if _, err := k.log.At(m); !errors.Is(err, segment.ErrNotFound) {
			t.Errorf("%+v: got %v", m, err)
		}
	}
}

func (k *kept) newMoment() segment.Moment {
	k.Helper()
	_, err := k.log.Checkpoint(k.Context())
	k.ok(err)
	s, err := k.log.Settled()
	k.ok(err)
	return s.Moment()
}

// While nothing can be written, what was sealed before is exported.
func TestSettledWhileWritingFails(t *testing.T) {
	t.Parallel()
	k := keep(t, memory(t))
	k.options.RetryEvery = time.Hour
	k.open()
	k.append("a-1", "a-2")
	k.ok(k.log.Rotate(t.Context()))
	k.append("a-3")
	k.ok(k.log.writer.runHeld(t.Context(), func() error { k.log.writer.fail(errors.New("the disk")); return nil }))
	if got := k.settled(nil); got.moment.Size != 3 {
		t.Errorf("got %+v, want the end of the sealed segment", got.moment)
	}
}
