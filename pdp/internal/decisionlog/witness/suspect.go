package witness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/plainfile"
)

// suspectAgain is how long a suspect is left out before it is asked again, so that a lie or a mend ends.
const suspectAgain = 5 * time.Minute

// mostSuspects bounds their file.
const mostSuspects = 64 << 10

// Suspect is a witness that says that it knows another log under the name of this one. It stays one until it cosigns.
type Suspect struct {
	Witness string    `json:"witness"` // its label
	Size    uint64    `json:"size"`    // that it named; 0 if it refused a proof
	Ours    uint64    `json:"ours"`    // that was put to it
	Status  int       `json:"status"`  // of its answer
	Since   time.Time `json:"since"`
}

// String says why.
func (s Suspect) String() string {
	if s.Size == 0 {
		return fmt.Sprintf("it says (%d) that what it cosigned is not the beginning of our %d records", s.Status, s.Ours)
	}
	return fmt.Sprintf("it says (%d) that it cosigned %d records, which are not among our %d", s.Status, s.Size, s.Ours)
}

// Suspects are those of a data directory.
func Suspects(data string) (all []Suspect, err error) {
	content, err := plainfile.Read(filepath.Join(data, format.SuspectsFile), mostSuspects)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("the suspected witnesses cannot be read: %w; remove %s, and they are asked again", err, format.SuspectsFile)
	}
	return all, nil
}

// Conflict reports whether evidence is kept that the log in a data directory forked: a checkpoint that bears its signature
// and is not of it. The error is of any other file in that place, which is no reason to stop.
func Conflict(r *segment.Reader, data string) (bool, error) {
	signed, err := plainfile.Read(filepath.Join(data, format.ConflictFile), format.MaxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var c segment.Checkpoint
	if err == nil {
		c, err = r.ParseOwnCheckpoint(signed)
	}
	if err == nil && r.CheckContinues(c) == nil {
		err = errors.New("it is of this log")
	}
	if err != nil {
		return false, fmt.Errorf("%s is no evidence of a fork: %w; find out who put it there, and remove it", format.ConflictFile, err)
	}
	return true, nil
}

// setConflict keeps the evidence that the log forked, and ends all submitting.
func (w *Witnesses) setConflict(evidence []byte, found string) {
	w.conflict = true
	w.logConflict(found)
	if err := plainfile.Replace(filepath.Join(w.Data, format.ConflictFile), evidence); err != nil {
		w.Logger.Error("that checkpoint cannot be kept; keep this message, and see to the disk of the data directory", "error", err, "checkpoint", string(evidence))
	}
}

func (w *Witnesses) logConflict(found string) {
	w.Logger.Error("this log forked: a checkpoint bears its signature and is not of it, and nothing is submitted to witnesses any more; see pdp/decisionlog/WITNESSES.md",
		"evidence", filepath.Join(w.Data, format.ConflictFile), "found", found)
}

func (p *peer) logSuspect(log *slog.Logger) {
	log.Error("the witness knows another log under the name of this one, or lies; it is left out", "witness", p.Label, "detail", p.state.Detail)
}

// readSuspects takes those of before. One that is not in the policy any more is forgotten. If they cannot be read, all
// witnesses are asked, and a suspect says the same again.
func (w *Witnesses) readSuspects() {
	all, err := Suspects(w.Data)
	if err != nil {
		w.Logger.Warn(err.Error())
	}
	for _, s := range all {
		if at := slices.IndexFunc(w.peers, func(p *peer) bool { return p.Label == s.Witness }); at >= 0 {
			w.peers[at].suspect, w.peers[at].state = &s, State{s.Witness, Suspected, s.String(), s.Since}
			w.peers[at].logSuspect(w.Logger)
		}
	}
}

// setSuspect makes a witness a suspect, or ends that: by a cosignature alone, so that a suspect that is away stays one.
func (w *Witnesses) setSuspect(a answer, now time.Time) {
	switch {
	case a.of.suspect == nil && a.outcome == Suspected:
		a.suspect.Witness, a.suspect.Since = a.of.Label, now
		a.of.suspect = &a.suspect
	case a.of.suspect != nil && a.outcome == Cosigned:
		a.of.suspect = nil
	default:
		return
	}
	all := []*Suspect{}
	for _, p := range w.peers {
		if p.suspect != nil {
			all = append(all, p.suspect)
		}
	}
	content, err := json.Marshal(all)
	if err == nil {
		err = plainfile.Replace(filepath.Join(w.Data, format.SuspectsFile), append(content, '\n'))
	}
	if err != nil {
		w.Logger.Error("the suspected witnesses cannot be kept for the next start; see to the disk of the data directory", "error", err)
	}
}

// evidence asks a suspect for the checkpoint that it cosigned last. It is a conflict if it bears a signature of this
// log, and is not of its tree. said describes it.
func (w *Witnesses) evidence(ctx context.Context, p *peer, origin string) (conflict []byte, said string) {
	name := sha256.Sum256([]byte(origin))
	shown, err := p.monitor.Call(ctx, httpclient.Call{
		Method: http.MethodGet, Path: "/" + hex.EncodeToString(name[:]) + "/checkpoint", Most: format.MaxCheckpointBytes})
	if err != nil {
		return nil, fmt.Sprintf("nothing: %.200s", err)
	}
	c, err := w.Log.ParseOwnCheckpoint(shown)
	if err != nil || c.Origin != origin {
		return nil, "nothing that this log signed"
	}
	switch err = w.Log.CheckContinues(c); {
	case errors.Is(err, segment.ErrForked):
		return shown, fmt.Sprintf("a checkpoint that the log signed: %v", err)
	case err != nil:
		return nil, fmt.Sprintf("one that cannot be compared: %v", err)
	}
	return nil, "a checkpoint of this log"
}
