package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// greet starts a process and finds out its era. A server of the modern era is known by its answer to server/discover; every
// other answer, and none, is that of a server of the legacy era, which then gets initialize. Some of those end because they
// were asked, and are started again.
//
// For a client of the legacy era a server that takes initialize is one, whatever else it speaks.
func (k *command) greet(ctx context.Context, c Client) (*childSession, error) {
	modern, legacy := k.o.speaks(era.Modern), k.o.speaks(era.Legacy)
	if c.Legacy && modern && legacy && !k.foreign[era.Legacy].Load() {
		s, err := k.start(c)
		if err == nil {
			err = s.initialize(ctx, c)
		}
		if !errors.Is(err, errOtherEra) {
			return greeted(s, err)
		}
		s.Close()
	}
	s, err := k.start(c)
	if err != nil {
		return nil, err
	}
	var late *childStream // the question, if it has no answer yet
	if modern && !k.foreign[era.Modern].Load() {
		late, err = s.discover(ctx, c)
		e := (*Error)(nil)
		switch {
		case err == nil:
			if c.Legacy {
				k.foreign[era.Legacy].Store(true)
			}
			return s, nil
		case errors.Is(err, errOtherEra) && !legacy:
			return greeted(s, &Error{Detail: "the server does not speak the modern era, and nothing else is allowed"})
		case errors.Is(err, errOtherEra): // go on
		case errors.As(err, &e) && e.Gone && ctx.Err() == nil && legacy:
			if s, err = k.start(c); err != nil {
				return nil, err
			}
		default:
			k.foreign[era.Legacy].Store(false)
			return greeted(s, err)
		}
	}
	err = s.initialize(ctx, c)
	if late != nil {
		defer late.Close()
		if m, _, none := late.take(); err != nil && none == nil && m.IsResponse() && s.isModern(m) == nil {
			return s, nil
		}
	}
	k.foreign[era.Modern].Store(err == nil)
	return greeted(s, err)
}

// greeted is a session, if its greeting went well; else it is over.
func greeted(s *childSession, err error) (*childSession, error) {
	if err != nil && s != nil {
		s.Close()
		return nil, err
	}
	return s, err
}

// become begins the session proper: the server is known.
func (s *childSession) become(e era.Era, server jsontext.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era, s.server = e, server
	if e == era.Legacy && s.over == nil {
		s.listeners = []*childStream{s.newStream()}
		s.early = time.AfterFunc(s.o.Probe, s.dropUnheard)
	}
}

// discover asks a question that servers of the modern era answer. The error is errOtherEra if the server is of the legacy
// era, as far as one can tell: late is the question if it has no answer yet.
func (s *childSession) discover(ctx context.Context, c Client) (late *childStream, err error) {
	question, err := s.begin(ctx, s.o.discovers(c))
	if err != nil {
		return nil, err
	}
	m, err := s.soon(question)
	e := (*Error)(nil)
	switch {
	case err == nil:
		return nil, s.isModern(m)
	case errors.Is(err, errSlow):
		return question, errOtherEra
	case errors.As(err, &e) && !e.Gone && ctx.Err() == nil: // an answer, if not one that can be read
		return nil, errOtherEra
	}
	return nil, fmt.Errorf("server/discover: %w", err)
}

// soon is the response to a question, or errSlow once Probe is over, however much else the server says meanwhile.
func (s *childSession) soon(question *childStream) (rpc.Message, error) {
	until := time.Now().Add(s.o.Probe)
	for {
		if question.patience = time.Until(until); question.patience <= 0 {
			return rpc.Message{}, errSlow
		}
		m, err := question.Next()
		if err != nil || m.IsResponse() {
			return m, err
		}
		s.o.Dropped(DropEarly)
	}
}

// isModern begins the session if m, an answer to server/discover, is that of a server of the modern era.
func (s *childSession) isModern(m rpc.Message) error {
	err := discovered(m)
	if err == nil {
		s.become(era.Modern, m.Result)
	}
	return err
}

// initialize does the handshake of the legacy era.
func (s *childSession) initialize(ctx context.Context, c Client) error {
	question, err := s.begin(ctx, s.o.initializes(c))
	if err != nil {
		return err
	}
	m, err := response(question, s.o.Dropped)
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if _, err := initialized(m); err != nil {
		return err
	}
	s.become(era.Legacy, m.Result)
	return s.Notify(ctx, rpc.Message{Method: "notifications/initialized"})
}
