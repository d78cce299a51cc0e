package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
)

const (
	// mostAnswer bounds the part of an answer that is read: signature lines, or a size.
	mostAnswer = 16 << 10
	// mostSizes is how often in a row a witness may name another size before the round ends for it.
	mostSizes = 2
	// mostSkew is how far the clock of a witness may be from ours.
	mostSkew = time.Hour
)

// answer is the result of asking a witness.
type answer struct {
	of       *peer
	outcome  Outcome
	detail   string
	line     string  // the cosignature, of Cosigned
	suspect  Suspect // of Suspected
	conflict []byte  // of Suspected: a checkpoint that proves that the log forked
}

func failed(outcome Outcome, format string, args ...any) answer {
	return answer{outcome: outcome, detail: fmt.Sprintf(format, args...)}
}

func suspected(status int, size, ours uint64) answer {
	s := Suspect{Status: status, Size: size, Ours: ours}
	return answer{outcome: Suspected, detail: s.String(), suspect: s}
}

// answer asks a witness for its cosignature. If it is a suspect then, its monitoring address is asked.
func (w *Witnesses) answer(ctx context.Context, p *peer, c segment.Checkpoint) answer {
	a := w.ask(ctx, p, c)
	a.of = p
	if a.outcome == Suspected && p.monitor != nil {
		var said string
		a.conflict, said = w.evidence(ctx, p, c.Origin)
		a.detail += "; its monitoring address shows " + said
	}
	return a
}

func (w *Witnesses) ask(ctx context.Context, p *peer, c segment.Checkpoint) answer {
	for again := 0; ; again++ {
		var proof tlog.TreeProof
		if old := p.old; old > 0 {
			var err error
			if proof, err = tlog.ProveTree(int64(c.Size), int64(old), w.Log); err != nil {
				p.old = 0 // the witness says it anew
				return failed(Unproved, "that %d records are the first of %d cannot be proved: %v", old, c.Size, err)
			}
		}
		status, said, other := p.submit(ctx, p.old, proof, c.Note)
		switch status {
		case http.StatusOK:
			line, err := p.cosignature(c, said, w.Now())
			if err != nil {
				return failed(BadLine, "%v", err)
			}
			p.old = c.Size
			return answer{outcome: Cosigned, line: line}
		case http.StatusUnprocessableEntity:
			return suspected(status, 0, c.Size)
		case http.StatusConflict:
		default:
			return other
		}
		size, err := parseSize(said)
		if err != nil {
			return failed(Refused, "it answers 409 without a size")
		}
		// A checkpoint that is newer than this one may have been submitted.
		newest, err := w.Log.Signed()
		switch {
		case err != nil || size > newest.Size, size == p.old && size == c.Size:
			return suspected(status, size, c.Size)
		case size > c.Size || again == mostSizes:
			return failed(OtherSize, "it goes on from another size each time, %d now", size)
		}
		p.old = size
	}
}

// Reach asks each witness of a policy whether it knows the log, by a checkpoint that is theirs already. Nothing comes of
// it: the outcome is Cosigned if the witness knows the log, though it cosigned nothing.
func Reach(ctx context.Context, policy *c2sp.Policy, signed []byte) (all []State) {
	for _, one := range policy.Witnesses {
		s, p := State{Witness: one.Label, Outcome: Cosigned}, &peer{Witness: one}
		var err error
		if p.server, err = connect(one.URL); err != nil {
			s.Outcome, s.Detail = Unreachable, err.Error()
		} else if _, _, other := p.submit(ctx, 0, nil, signed); other.outcome != "" {
			s.Outcome, s.Detail = other.outcome, other.detail
		}
		all = append(all, s)
	}
	return all
}

// submit sends one add-checkpoint. It follows no redirect. If it is not 200, 409 or 422, other is the result.
func (p *peer) submit(ctx context.Context, old uint64, proof tlog.TreeProof, signed []byte) (status int, said []byte, other answer) {
	body := fmt.Appendf(nil, "old %d\n", old)
	for _, hash := range proof {
		body = append(base64.StdEncoding.AppendEncode(body, hash[:]), '\n')
	}
	body = append(append(body, '\n'), signed...)
	r, err := p.server.Ask(ctx, http.MethodPost, "/add-checkpoint", nil, body,
		http.StatusOK, http.StatusConflict, http.StatusUnprocessableEntity)
	if err == nil {
		defer func() { _ = r.Body.Close() }()
		if said, err = io.ReadAll(io.LimitReader(r.Body, mostAnswer+1)); len(said) > mostAnswer {
			said = nil // nothing of it counts
		}
	}
	switch status = httpclient.StatusOf(err); {
	case err == nil:
		return r.StatusCode, said, other
	case status == http.StatusForbidden:
		return status, nil, failed(UnknownKey, "it does not know the key in force; have its operator add the key that log key prints last")
	case status == http.StatusNotFound:
		return status, nil, failed(UnknownLog, "it does not know this log; have its operator add the origin and the key")
	case status != 0:
		return status, nil, failed(Refused, "it answers %d", status)
	case errors.Is(err, context.DeadlineExceeded):
		return 0, nil, failed(Unreachable, "it does not answer in time")
	}
	return 0, nil, failed(Unreachable, "%.200s", err)
}

// cosignature is the line of a witness in its answer. Every other line there is left out.
func (p *peer) cosignature(c segment.Checkpoint, said []byte, now time.Time) (string, error) {
	signed := append(bytes.Clone(c.Note), said...)
	line, err := lineOf(signed, p.Witness)
	if err != nil || !bytes.HasPrefix(c.Note, []byte(line.Text+"\n")) { // the answer could go on with the text
		return "", errors.New("its answer has no cosignature of this checkpoint by its key")
	}
	at, err := c2sp.CosignedAt(line.Sigs[0])
	if err != nil {
		return "", errors.New("its cosignature has no time")
	}
	if at.Sub(now).Abs() > mostSkew {
		return "", fmt.Errorf("its cosignature is of %s, and it is %s here; one of the clocks is wrong", at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return "— " + line.Sigs[0].Name + " " + line.Sigs[0].Base64 + "\n", nil
}

// lineOf opens a note by the key of a witness, whose signature is then the only one.
func lineOf(signed []byte, by c2sp.Witness) (*note.Note, error) {
	return note.Open(signed, note.VerifierList(by.Verifier))
}

// Enough is an error if no quorum of a policy cosigned a checkpoint. The keys of its logs are not asked for.
func Enough(p *c2sp.Policy, signed []byte) error {
	cosigned := map[string]bool{}
	for _, one := range p.Witnesses {
		_, err := lineOf(signed, one)
		cosigned[one.Label] = err == nil
	}
	if !p.Quorum(func(label string) bool { return cosigned[label] }) {
		return fmt.Errorf("%w: the quorum is %s", c2sp.ErrQuorum, p.QuorumName)
	}
	return nil
}

// parseSize reads a size as it is written in one way.
func parseSize(said []byte) (uint64, error) {
	text := strings.TrimSuffix(string(said), "\n")
	size, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(size, 10) != text {
		return 0, errors.New("no size")
	}
	return size, nil
}
