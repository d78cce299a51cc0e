package decisionlog_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/segment"
)

// The tests inside the package are judged by verify, and write exports. They cannot import verify and export, because
// these import the package.
func init() {
	decisionlog.JudgeDirectory = func(data string) error { return judged(verify.Directory(data, verify.Options{})) }
	decisionlog.JudgeKept = func(data, checkpoint string) error {
		return judged(verify.Directory(data, verify.Options{Checkpoint: checkpoint}))
	}
	decisionlog.JudgeExport = func(all []byte, keys ...string) error {
		return judged(verify.Export(bytes.NewReader(all), verify.Options{Key: strings.Join(keys, "\n")}))
	}
	decisionlog.WriteExport = func(
		ctx context.Context, s *segment.Snapshot, w io.Writer, o decisionlog.ExportOptions,
	) (decisionlog.Exported, error) {
		done, err := export.Log{Snapshot: s}.Export(ctx, w, export.Options(o))
		return decisionlog.Exported(done), err
	}
	decisionlog.WriteProof = func(ctx context.Context, s *segment.Snapshot, w io.Writer, id string) error {
		return export.Log{Snapshot: s}.Prove(ctx, w, id)
	}
	decisionlog.WriteConsistency = func(ctx context.Context, s *segment.Snapshot, w io.Writer, old []byte) error {
		return export.Log{Snapshot: s}.Consistency(ctx, w, old)
	}
	decisionlog.Tail = func(
		ctx context.Context, data string, o decisionlog.TailOptions, yield func(int64, []byte) error,
	) (int64, error) {
		return export.Tail(ctx, data, export.TailOptions(o), yield)
	}
}

func judged(r verify.Report) error {
	if r.Verified() {
		return nil
	}
	return fmt.Errorf("verify: %v: %w", r.Code, r.Problem)
}
