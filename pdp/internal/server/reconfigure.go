package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// live are the parts that a new configuration replaces, all of them by one pointer. It does not change once the server runs.
type live struct {
	// config is the configuration in force. A key that does not reload has the value of the start.
	config  Config
	callers door.Authenticator
	mask    *mask.Masker // nil without a decision log
}

// inForce has the configuration in force.
type inForce struct {
	atomic.Pointer[live]
	changing sync.Mutex // is held while a new configuration is checked
}

// pinned is the configuration with which the request of a context began. If the context belongs to no request, it is the
// one in force.
func (f *inForce) pinned(ctx context.Context) *live {
	if l, ok := door.Kept(ctx).(*live); ok {
		return l
	}
	return f.Load()
}

// RestartError is the error of a new configuration if a part of it counts only from the start of the process.
type RestartError struct {
	// Keys are those that changed and need a restart.
	Keys []string
}

func (e *RestartError) Error() string {
	return fmt.Sprintf("what changed in %s counts after a restart only; restart the service, or put it back as it was and send SIGHUP again", strings.Join(e.Keys, ", "))
}

// Reconfigure takes a new configuration while the server runs, all of it or nothing. It calls read, which makes the
// configuration from the sources of the one at the start. Everything stays as it is if the configuration cannot be
// read, if it cannot work, or if a key has changed that does not reload; that is logged, put on record, and returned.
// Requests under way keep the configuration of their beginning. [Config.Program] stays as it was at the start.
func (s *Server) Reconfigure(ctx context.Context, read func() (Config, error)) error {
	s.live.changing.Lock()
	defer s.live.changing.Unlock()
	changed, err := s.reconfigure(ctx, read)
	switch {
	case err != nil:
		s.log.Error("configuration refused; all of the one before it stays in force")
		problems := strings.Split(err.Error(), "\n")
		for _, problem := range problems {
			s.log.Error(problem)
		}
		s.decisions.soon(configurationRefused(err, problems))
	case len(changed) == 0:
		s.log.Info("the configuration was read again; nothing in it has changed")
	default:
		s.log.Info("configuration in force", "changed", changed)
	}
	return err
}

func (s *Server) reconfigure(ctx context.Context, read func() (Config, error)) (changed []string, err error) {
	given, err := read()
	if err != nil {
		return nil, err
	}
	before := s.live.Load()
	config, changed, err := before.merged(given)
	if err != nil || len(changed) == 0 {
		return nil, err
	}
	if err = config.Metrics.check(); err != nil {
		return nil, err
	}
	next := &live{config: config}
	if next.callers, err = before.newCallers(ctx, config); err != nil {
		return nil, err
	}
	if next.mask, err = before.newMask(config); err != nil {
		return nil, err
	}
	if s.decisions != nil {
		configured := recorder.Event{Name: format.EventConfiguration, Details: ConfigForm.Values(config)}
		if err := s.decisions.events.Record(ctx, configured); err != nil {
			return nil, fmt.Errorf("the new configuration cannot be recorded: %w; see to the disk of the data directory, and send SIGHUP again", err)
		}
	}
	// Nothing that can fail comes after this line.
	s.live.Store(next)
	if relog := config.Program.Relog; relog != nil {
		relog(config.Log)
	}
	if s.decisions != nil {
		s.decisions.reconfigured(ctx)
	}
	return changed, nil
}

// merged is the configuration in force with the keys of another, and which of them changed.
func (l *live) merged(next Config) (Config, []string, error) {
	if err := next.checkData(); err != nil {
		return next, nil, err
	}
	next.Program = l.config.Program
	ConfigForm.SetDefaults(&next)
	if err := next.check(); err != nil {
		return next, nil, err
	}
	var changed, restart []string
	for _, key := range ConfigForm.Changed(l.config, next) {
		changed = append(changed, key.Path)
		if !key.Reloads {
			restart = append(restart, key.Path)
		}
	}
	// The size of segments is made from it, and stays that of the start.
	if next.DecisionLog.Retain.segments() != l.config.DecisionLog.Retain.segments() {
		restart = append(restart, "decision_log.retain")
	}
	if len(restart) > 0 {
		return next, nil, &RestartError{restart}
	}
	return next, changed, nil
}

// newCallers is the authenticator from now on. If nothing of it has changed it is the one of before, with its caches.
func (l *live) newCallers(ctx context.Context, config Config) (door.Authenticator, error) {
	known, ours := l.callers.(*auth.Authenticator)
	if !ours || reflect.DeepEqual(config.Auth, l.config.Auth) && reflect.DeepEqual(config.oidc(), l.config.oidc()) {
		return l.callers, nil
	}
	next, err := newAuthenticator(config, known)
	if err != nil {
		return nil, err
	}
	if known.Configured() && !next.Configured() {
		return nil, errors.New("without auth there would be no credentials any more, and the door would be open to everybody on this machine; add an API key first, or restart")
	}
	// Else the first caller would wait for the keys of a new issuer.
	if next.JWT != nil {
		next.JWT.Warm(ctx)
	}
	if next.Console != nil {
		next.Console.Warm(ctx)
	}
	return next, nil
}

func (l *live) newMask(config Config) (*mask.Masker, error) {
	if l.mask == nil || slices.Equal(config.DecisionLog.Mask, l.config.DecisionLog.Mask) {
		return l.mask, nil
	}
	return newMask(config)
}

func newMask(config Config) (*mask.Masker, error) {
	key, err := maskKey.Open(config.Data)
	if err != nil {
		return nil, err
	}
	return mask.New(key, config.DecisionLog.Mask)
}

// configurationRefused is the record of a configuration that was refused.
func configurationRefused(err error, problems []string) recorder.Event {
	const most = 100 // one file can hold thousands
	details := map[string]any{"count": len(problems), "problems": problems[:min(len(problems), most)]}
	if restart := (*RestartError)(nil); errors.As(err, &restart) {
		details["restart"] = restart.Keys
	}
	return recorder.Event{Name: format.EventConfigurationRefused, Details: details}
}
