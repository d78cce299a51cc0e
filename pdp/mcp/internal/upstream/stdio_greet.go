package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
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
	if c.Legacy && k.o.speaks(era.Legacy) && k.o.speaks(era.Modern) && !k.found(era.Modern) {
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
	if k.o.speaks(era.Modern) && !k.found(era.Legacy) {
		var modern bool
		modern, late, err = s.discover(ctx, c)
		var gone *Error
		switch {
		case modern || err == nil && k.o.speaks(era.Legacy): // go on
		case err == nil:
			err = &Error{Detail: "the server does not speak the modern era, and nothing else is allowed"}
		case errors.As(err, &gone) && gone.Gone && ctx.Err() == nil && k.o.speaks(era.Legacy):
			s, err = k.start(c)
		}
		if modern || err != nil {
			if c.Legacy || !modern {
				k.note(era.Modern, modern)
			}
			return greeted(s, err)
		}
	}
	err = s.initialize(ctx, c)
	if late != nil {
		defer late.Close()
	}
	if err != nil && late != nil && s.answersLate(late) {
		return s, nil
	}
	k.note(era.Legacy, err == nil)
	return greeted(s, err)
}

// found reports whether the server has been found to be of an era alone.
func (k *command) found(e era.Era) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.alone[e]
}

// note remembers whether a server is of an era alone, until that turns out to be wrong: of the modern one if it has refused
// initialize.
func (k *command) note(e era.Era, alone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.alone[e] = alone
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

// discover asks a question that servers of the modern era answer. It is neither modern nor an error if the server is of the legacy era,
// as far as one can tell: late is the question if it has no answer yet.
func (s *childSession) discover(ctx context.Context, c Client) (modern bool, late *childStream, err error) {
	question, err := s.begin(ctx, c.discovers(s.o.Name, s.o.Version))
	if err != nil {
		return false, nil, err
	}
	m, err := question.response(s.o.Probe)
	switch {
	case err == errNoAnswer:
		return false, question, nil
	case err != nil:
		var e *Error
		if errors.As(err, &e) && !e.Gone && ctx.Err() == nil { // an answer, if not one that can be read
			return false, nil, nil
		}
		return false, nil, err
	}
	modern, err = s.speaksModern(m)
	return modern, nil, err
}

// answersLate reports whether the answer to the question of [childSession.discover] has come meanwhile.
func (s *childSession) answersLate(late *childStream) bool {
	m, ok, _ := late.take()
	if !ok || !m.IsResponse() {
		return false
	}
	modern, err := s.speaksModern(m)
	return modern && err == nil
}

// speaksModern reports whether an answer to server/discover is that of a server which speaks a modern revision that we
// speak. The session begins if it is.
func (s *childSession) speaksModern(m rpc.Message) (bool, error) {
	var versions []string
	switch code := errorCode(m.Error); {
	case m.Result != nil:
		o, _ := m.ResultObject()
		versions = texts(o.Get("supportedVersions"))
		if versions == nil {
			return false, nil
		}
	case code == era.UnsupportedVersion:
		e, _ := rpc.ParseObject(m.Error)
		data, _ := rpc.ParseObject(e.Get("data"))
		versions = texts(data.Get("supported"))
	case code == era.MissingCapability, code == era.HeaderMismatch:
		return false, &Error{Answer: m.Error, Detail: "the server refuses what every client of its era may ask"}
	default:
		return false, nil
	}
	speaks := func(of []string) bool {
		return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(of, v) })
	}
	switch {
	case speaks(era.ModernVersions) && m.Result != nil:
		s.become(era.Modern, m.Result)
		return true, nil
	case speaks(era.LegacyVersions):
		return false, nil
	}
	return false, &Error{Detail: "the server speaks no revision of MCP that the gateway speaks"}
}

// initialize does the handshake of the legacy era.
func (s *childSession) initialize(ctx context.Context, c Client) error {
	question, err := s.begin(ctx, c.initializes(s.o.Name, s.o.Version))
	if err != nil {
		return err
	}
	m, err := question.response(s.o.Timeout)
	switch {
	case err == errNoAnswer:
		return &Error{Gone: true, Detail: "the server is silent: it answers neither server/discover nor initialize"}
	case err != nil:
		return err
	case m.Error != nil:
		return &Error{Gone: true, Answer: m.Error, Detail: "the server refuses initialize", Err: errOtherEra}
	}
	result, _ := m.ResultObject()
	if !slices.Contains(era.LegacyVersions, result.GetString("protocolVersion")) {
		return &Error{Gone: true, Detail: "the server speaks no revision of MCP that the gateway speaks", Err: errOtherEra}
	}
	s.become(era.Legacy, m.Result)
	return s.Notify(ctx, rpc.Message{Method: "notifications/initialized"})
}

// texts are the members of an array of strings, nil if it is none.
func texts(v jsontext.Value) (all []string) {
	if v == nil || json.Unmarshal(v, &all) != nil {
		return nil
	}
	return all
}
