package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"policy-service/evaluation"
	"policy-service/evaluation/recent"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// question is one recorded question, or a vote.
type question struct {
	*record.Recorded
	// lacks is why it cannot be judged, one of the reasons below.
	lacks string
	// leaf is the hash of the record that it is from.
	leaf [sha256.Size]byte
}

// The reasons why a record cannot be judged.
const (
	// LacksContent: the record, or that of its batch, was redacted, dropped by retention, or may not be seen.
	LacksContent = "content"
	// LacksBundle: the files of the bundle that answered are not kept.
	LacksBundle = "bundle"
	// LacksLoad: these files do not load today.
	LacksLoad = "bundle_loads"
	// LacksRequest: the request cannot be made of the record.
	LacksRequest = "request"
	// LacksRoom: the record of a batch had no room for the question.
	LacksRoom = "room"
)

// Why says in words why records cannot be judged.
func Why(lacks string) string {
	return map[string]string{
		LacksContent: "their content, or that of their batch, was removed, or may not be seen",
		LacksBundle:  "the policies that answered them are not here",
		LacksLoad:    "the policies that answered them do not load today",
		LacksRequest: "their request cannot be made of the record",
		LacksRoom:    "the record of their batch had no room for them",
	}[lacks]
}

// work is a few records in their order, and their results.
type work[T any] struct {
	records []raw
	done    chan struct{}
	made    []T
	err     error
}

// raw is a record, and the last one before it that may be of a batch.
type raw struct {
	record.Record
	batch record.Record
}

// atOnce is how many records a worker takes.
const atOnce = 256

// walk judges the records of a source side by side, and gives each result to take, in the order of the log.
func walk[T any](
	ctx context.Context, from Source, o *Options, judge func(context.Context, question) (T, error), take func(T),
) (records int64, err error) {
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	todo, order := make(chan *work[T], workers), make(chan *work[T], 4*workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for w := range todo {
				w.err = w.ask(ctx, o, judge)
				close(w.done)
			}
		})
	}
	var failed error
	running.Go(func() {
		defer close(order)
		defer close(todo)
		failed = read(ctx, from, func(some []raw) bool {
			w := &work[T]{records: some, done: make(chan struct{})}
			select {
			case order <- w:
				todo <- w // a worker takes it: they go on until todo is closed
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for w := range order {
		<-w.done
		if err == nil {
			err = w.err
		}
		if err != nil {
			stop()
			continue
		}
		for _, one := range w.made {
			take(one)
		}
		if records += int64(len(w.records)); o.Progress != nil {
			o.Progress(records)
		}
	}
	running.Wait()
	return records, errors.Join(err, failed)
}

// ask judges each question of the records.
func (w *work[T]) ask(ctx context.Context, o *Options, judge func(context.Context, question) (T, error)) error {
	for _, one := range w.records {
		questions, err := questionsIn(one, o)
		if err != nil {
			return err
		}
		for _, q := range questions {
			q.leaf = one.Leaf
			made, err := judge(ctx, q)
			if err != nil {
				return err
			}
			w.made = append(w.made, made)
		}
	}
	return nil
}

// ofBatch is in the record of a batch, and may be in others.
var ofBatch = []byte(`"kind":"` + format.KindBatch + `"`)

// read reads a few records at a time. With an item of a batch comes the record of the batch, which stands before it.
func read(ctx context.Context, from Source, give func([]raw) bool) error {
	var some []raw
	batches := map[string]record.Record{} // the last one of each log
	for rec, err := range from.Records(ctx) {
		if err != nil {
			return err
		}
		if bytes.Contains(rec.Line, ofBatch) {
			if is, err := record.Parse(rec.Line); err == nil && is.Kind == format.KindBatch {
				batches[rec.Log] = rec.Record
			}
		}
		if some = append(some, raw{rec.Record, batches[rec.Log]}); len(some) == atOnce {
			if !give(some) {
				return ctx.Err()
			}
			some = nil
		}
	}
	if len(some) > 0 && !give(some) {
		return ctx.Err()
	}
	return nil
}

// questionsIn are the questions of a record, none if it has none or is not chosen.
func questionsIn(r raw, o *Options) (all []question, err error) {
	if r.Line == nil {
		return []question{{Recorded: &record.Recorded{Sequence: r.Sequence}, lacks: LacksContent}}, nil
	}
	batch, err := r.inheritsFrom()
	if err != nil {
		return nil, err
	}
	resolved, err := record.Resolve(r.Line, batch)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", r.Sequence, err)
	}
	switch {
	case !o.has(&resolved):
		return nil, nil
	case o.votes && isVote(&resolved):
		return []question{{Recorded: &resolved}}, nil
	case resolved.Kind != format.KindDecision && resolved.Kind != format.KindPossible:
		return nil, nil
	case resolved.Items == nil:
		return []question{asked(&resolved)}, nil
	}
	questions, err := resolved.ResolvedQuestions()
	for n := range questions {
		all = append(all, asked(&questions[n]))
	}
	if resolved.Rest != nil {
		for range resolved.Rest.More {
			all = append(all, question{Recorded: &resolved, lacks: LacksRoom})
		}
	}
	return all, err
}

// inherits is in an item of a batch that inherits, and may be in others.
var inherits = []byte(`"inherits":[`)

// inheritsFrom is the record of the batch that an item inherits from, one without a Line if there is none.
func (r raw) inheritsFrom() (none record.Record, err error) {
	if r.batch.Line == nil || !bytes.Contains(r.Line, inherits) {
		return none, nil
	}
	item, err := record.Parse(r.Line)
	if err != nil || item.BatchID() == "" {
		return none, err
	}
	if of, err := record.Parse(r.batch.Line); err == nil && of.Kind == format.KindBatch && of.ID == item.BatchID() {
		return r.batch, nil
	}
	return none, nil
}

func asked(r *record.Recorded) question {
	if len(r.Gone) > 0 {
		return question{Recorded: r, lacks: LacksContent}
	}
	return question{Recorded: r}
}

// bundles are those that answered, compiled once each.
type bundles struct {
	from Source

	mu  sync.Mutex
	all recent.Texts[*compiled]
}

type compiled struct {
	once  sync.Once
	b     *pdp.Bundle
	lacks string
	err   error
}

// mostCompiled is how many bundles are kept at once.
const mostCompiled = 8

func newBundles(from Source) *bundles { return &bundles{from: from} }

// of is the bundle that answered a question, or why there is none.
func (b *bundles) of(q *record.Recorded) (made *pdp.Bundle, lacks string, err error) {
	one := b.compiled(q.Bundle, "")
	if one.b != nil && !one.b.HasTenant(q.Tenant) && evaluation.IsTenantName(q.Tenant) {
		one = b.compiled(q.Bundle, q.Tenant)
	}
	return one.b, one.lacks, one.err
}

// compiled is a bundle. A tenant that has no files of its own in it is named besides.
func (b *bundles) compiled(digest, tenant string) *compiled {
	sum := recent.Digest(sha256.Sum256([]byte(digest + "\n" + tenant)))
	b.mu.Lock()
	one, found := b.all.Get(sum)
	if !found {
		one = new(compiled)
		b.all.Put(sum, one, mostCompiled/2)
	}
	b.mu.Unlock()
	one.once.Do(func() {
		files, err := b.from.Bundle(digest)
		if err != nil || files == nil {
			one.lacks, one.err = LacksBundle, err
			return
		}
		if one.b, err = recorder.Compile(files, tenant); err != nil {
			one.lacks = LacksLoad
		}
	})
	return one
}
