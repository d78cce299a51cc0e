package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest/inside/segment"
)

// An upset is something that happens to a server now and then while it answers.
type upset struct {
	every time.Duration
	do    func(context.Context) error
}

// upsets are what happens, each often enough that it happens in a short soak as well.
func (s *soak) upsets() map[string]upset {
	often := func(most time.Duration, times int) time.Duration { return min(most, s.duration/time.Duration(times)) }
	return map[string]upset{
		"reload":               {often(4*time.Second, 12), s.reload},
		"log key rotation":     {often(45*time.Second, 6), s.rotateLogKey},
		"signing key rotation": {often(40*time.Second, 6), s.rotateSigningKey},
		"API key":              {often(15*time.Second, 6), s.comeAndGo},
		"export":               {often(40*time.Second, 6), s.export},
		"burst":                {often(30*time.Second, 8), s.burst},
		"look at descriptors":  {250 * time.Millisecond, s.look},
	}
}

// happen does something again and again until ctx ends, the first time in any case.
// Between two times it waits, so that what takes long does not happen all the time.
func (u upset) happen(ctx context.Context, s *soak, name string) error {
	for {
		// What has begun is brought to its end, also when the time is over.
		if err := u.do(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		s.count(name)
		wait := time.NewTimer(u.every/2 + rand.N(u.every))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
	}
}

// reload puts the next bundle in the place of the one that is there, by rename, and waits
// until it is in force; or until it is refused, and the one before is still in force.
func (s *soak) reload(ctx context.Context) error {
	n := int(s.reloads.Add(1)) % len(s.variants)
	digest := s.digests[n]
	if digest != "" {
		s.judge.comes(digest)
	}
	link := s.path("bundle.next")
	if err := errors.Join(os.Symlink(s.variants[n], link), os.Rename(link, s.path("bundle"))); err != nil {
		return err
	}
	if n == 0 { // an operator who does not wait
		if err := s.server.Process.Signal(syscall.SIGHUP); err != nil {
			return err
		}
	}
	err := untilDone(ctx, "the bundle "+s.variants[n]+" is read", func() (bool, error) {
		r, err := s.get(s.peps["gateway"], "/readyz")
		if err != nil {
			return false, err
		}
		var state struct {
			Status string
			Bundle struct{ Digest string }
		}
		err = json.Unmarshal([]byte(r.body), &state, json.MatchCaseInsensitiveNames(true))
		if digest == "" {
			return state.Status == "degraded", err
		}
		return state.Status == "ready" && state.Bundle.Digest == digest, err
	})
	if digest != "" && err == nil {
		s.judge.is()
	}
	return err
}

// beside are the flags of commands that ask the server.
func (s *soak) beside() []string {
	return []string{"--server", s.url, "--credential", s.path("auditor.key")}
}

func (s *soak) rotateLogKey(ctx context.Context) error {
	_, err := s.run(ctx, append([]string{"log", "key", "rotate"}, s.beside()...)...)
	return err
}

// rotateSigningKey waits until the new key is published.
func (s *soak) rotateSigningKey(ctx context.Context) error {
	kid, err := s.run(ctx, "keys", "rotate", "--data", s.path("data"))
	if err != nil {
		return err
	}
	return untilDone(ctx, "the new signing key is published", func() (bool, error) {
		r, err := s.get(s.peps["gateway"], "/.well-known/jwks.json")
		return strings.Contains(r.body, strings.TrimSpace(kid)), err
	})
}

// comeAndGo makes an API key and ends it, and waits until each is noticed.
func (s *soak) comeAndGo(ctx context.Context) error {
	who := &pep{name: fmt.Sprintf("visitor-%d", s.visitors.Add(1))}
	key, err := s.run(ctx, "keys", "add", "--data", s.path("data"), "--name", who.name, "--permission", "log.read")
	if err != nil {
		return err
	}
	who.key = strings.TrimSpace(key)
	answers := func(status int) error {
		return untilDone(ctx, fmt.Sprintf("%s is answered %d", who.name, status), func() (bool, error) {
			r, err := s.get(who, "/v1/decisions?limit=1")
			return r.status == status, err
		})
	}
	if err := answers(http.StatusOK); err != nil {
		return err
	}
	if _, err := s.run(ctx, "keys", "revoke", "--data", s.path("data"), who.name); err != nil {
		return err
	}
	return answers(http.StatusUnauthorized)
}

// export takes the whole log home, and verifies it with the keys the log has had and the
// checkpoint taken home before; then it takes the next. An export has no checkpoints but
// its own, so that the first key alone is not enough; for the directory it is, at the end.
func (s *soak) export(ctx context.Context) error {
	file, kept := s.path("export.ndjson"), s.path("kept.checkpoint")
	if err := s.exportTo(ctx, file); err != nil {
		return err
	}
	keys, err := s.run(ctx, append([]string{"log", "key"}, s.beside()...)...)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(keys, s.firstKey+"\n") {
		return fmt.Errorf("the log's keys do not begin with the first: %s", keys)
	}
	verify := []string{"log", "verify", file, "--key", s.path("log.pub")}
	if err := os.WriteFile(s.path("log.pub"), []byte(keys), 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(kept); err == nil {
		verify = append(verify, "--checkpoint", kept)
	}
	if _, err := s.run(ctx, verify...); err != nil {
		return err
	}
	checkpoint, err := s.run(ctx, append([]string{"log", "checkpoint"}, s.beside()...)...)
	if err != nil {
		return err
	}
	s.home([]byte(checkpoint))
	return os.WriteFile(kept, []byte(checkpoint), 0o600)
}

// exportTo does as it is told where retention took content out of an export under way:
// it runs it again.
func (s *soak) exportTo(ctx context.Context, file string) (err error) {
	for range 10 {
		_, err = s.run(ctx, append([]string{"log", "export", "-o", file}, s.beside()...)...)
		if err == nil || !strings.Contains(err.Error(), segment.ErrChanged.Error()) {
			return err
		}
	}
	return err
}

// burst has several times as many clients ask as before, for a moment.
func (s *soak) burst(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(3*time.Second, s.duration/16))
	defer cancel()
	s.ask(ctx.Done(), burstClients)
	return nil
}

func (s *soak) look(context.Context) error {
	n, err := descriptors(s.server.Process.Pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, n)
	return err
}
