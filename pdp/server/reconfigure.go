package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/decisionlog/recorder"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// live is what a new configuration replaces, all of it by one pointer. It is not changed
// once the server runs.
type live struct {
	// config is the configuration in force. What it says of keys that do not reload is
	// what it said at the start.
	config  Config
	callers door.Authenticator
	mask    *mask.Masker // nil without a decision log
}

type liveKey struct{}

// pin has a request keep to the end the configuration that it began with.
func (s *Server) pin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), liveKey{}, s.live.Load())))
		return next(c)
	}
}

// pinned is what a request began with; for all that is no request, what is in force.
func (s *Server) pinned(ctx context.Context) *live {
	if l, ok := ctx.Value(liveKey{}).(*live); ok {
		return l
	}
	return s.live.Load()
}

// RestartError is the error of a new configuration of which something counts only from
// the start of the process.
type RestartError struct {
	// Keys are those that changed and need a restart.
	Keys []string
}

func (e *RestartError) Error() string {
	return fmt.Sprintf("what changed in %s counts after a restart only; restart the service, or put it back as it was and send SIGHUP again", strings.Join(e.Keys, ", "))
}

// Reconfigure takes a new configuration while the server runs, all of it or nothing: read
// makes it, from what the one at the start was made from. Where it cannot be read, where
// it cannot work, or where a key has changed that does not reload, all stays as it is;
// that is logged, put on record, and returned. Requests under way keep what they began
// with. [Config.Program] stays as it was at the start.
func (s *Server) Reconfigure(ctx context.Context, read func() (Config, error)) error {
	s.reconfiguring.Lock()
	defer s.reconfiguring.Unlock()
	changed, err := s.reconfigure(ctx, read)
	switch {
	case err != nil:
		s.configRefused(err)
	case len(changed) == 0:
		s.log.Info("the configuration was read again; nothing in it has changed")
	default:
		s.log.Info("configuration in force", "changed", changed)
	}
	return err
}

func (s *Server) reconfigure(ctx context.Context, read func() (Config, error)) (changed []string, err error) {
	told, err := read()
	if err != nil {
		return nil, err
	}
	before := s.live.Load()
	config, changed, err := s.merged(told)
	if err != nil || len(changed) == 0 {
		return nil, err
	}
	next := &live{config: config}
	if next.callers, err = s.newCallers(ctx, config, before); err != nil {
		return nil, err
	}
	if next.mask, err = s.newMask(config, before); err != nil {
		return nil, err
	}
	if s.events != nil {
		if err := s.events.Record(ctx, recorder.Event{
			Name:    decisionlog.EventConfiguration,
			Details: ConfigForm.Values(config),
		}); err != nil {
			return nil, fmt.Errorf("the new configuration cannot be recorded: %w; see to the disk of the data directory, and send SIGHUP again", err)
		}
	}
	// Nothing that can fail comes after this line.
	s.live.Store(next)
	if s.retention != nil {
		if err := s.boundCallers(context.WithoutCancel(ctx)); err != nil {
			s.log.Error("callers are bounded by what decision_log.retain said before; see to the disk of the data directory, and restart", "error", err)
		}
		s.retention.look()
	}
	return changed, nil
}

// merged is the running configuration with the keys of another, and which of them changed.
func (s *Server) merged(next Config) (Config, []string, error) {
	if err := next.checkData(); err != nil {
		return next, nil, err
	}
	running := s.live.Load().config
	next.Program = running.Program
	ConfigForm.SetDefaults(&next)
	if err := next.check(); err != nil {
		return next, nil, err
	}
	var changed, restart []string
	for _, key := range ConfigForm.Changed(running, next) {
		changed = append(changed, key.Path)
		if !key.Reloads {
			restart = append(restart, key.Path)
		}
	}
	// The size of segments is made from it, and is the log's from the start.
	if retain := next.DecisionLog.Retain; !retain.sameSegments(s.config.DecisionLog.Retain) {
		restart = append(restart, "decision_log.retain")
	}
	if len(restart) > 0 {
		return next, nil, &RestartError{restart}
	}
	return next, changed, nil
}

// newCallers is who may ask from now on. Where nothing of auth has changed it is as
// before, and knows what it knew.
func (s *Server) newCallers(ctx context.Context, config Config, before *live) (door.Authenticator, error) {
	known, ours := before.callers.(*auth.Authenticator)
	if !ours || reflect.DeepEqual(config.Auth, before.config.Auth) {
		return before.callers, nil
	}
	next, err := s.callers(config, known)
	if err != nil {
		return nil, err
	}
	if known.Configured() && !next.Configured() {
		return nil, errors.New("without auth there would be no credentials any more, and the door would be open to everybody on this machine; add an API key first, or restart")
	}
	if next.JWT != nil {
		next.JWT.Warm(ctx) // else the first caller would wait for the keys of a new issuer
	}
	return next, nil
}

func (s *Server) newMask(config Config, before *live) (*mask.Masker, error) {
	if before.mask == nil || slices.Equal(config.DecisionLog.Mask, before.config.DecisionLog.Mask) {
		return before.mask, nil
	}
	key, err := maskKey.Open(config.Data)
	if err != nil {
		return nil, err
	}
	return mask.New(key, config.DecisionLog.Mask)
}

// configRefused tells of a configuration that was not taken, in the log and on record.
func (s *Server) configRefused(err error) {
	s.log.Error("configuration refused; all of the one before it stays in force")
	problems := strings.Split(err.Error(), "\n")
	for _, problem := range problems {
		s.log.Error(problem)
	}
	if s.events == nil {
		return
	}
	const most = 100 // one file can hold thousands
	details := map[string]any{"count": len(problems), "problems": problems[:min(len(problems), most)]}
	if restart := (*RestartError)(nil); errors.As(err, &restart) {
		details["restart"] = restart.Keys
	}
	s.events.Soon(recorder.Event{Name: decisionlog.EventConfigurationRefused, Details: details})
}
