package people

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// Conversation holds the open requests to a client of the legacy era, on a stream of its session. The client answers them
// with messages of its own.
type Conversation struct {
	ID   string // of the session
	ring *seal.Ring

	mu        sync.Mutex
	waiting   map[rpc.ID]chan rpc.Message // requests of servers
	questions map[rpc.ID]*question        // questions of the gateway
}

// NewConversation returns the conversation of a session.
func NewConversation(id string, ring *seal.Ring) *Conversation {
	return &Conversation{ID: id, ring: ring, waiting: map[rpc.ID]chan rpc.Message{}, questions: map[rpc.ID]*question{}}
}

// Channel is the name by which a PDP knows the session: neither guessed nor shorter than its life, and no client can resume the session
// with it.
func (s *Conversation) Channel() string {
	sum := sha256.Sum256([]byte(s.ID))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Ask sends the client a request of the server, and waits for the answer.
func (s *Conversation) Ask(ctx context.Context, shown rpc.Message, send func(rpc.Message) error) rpc.Message {
	// The client gets an id of the gateway: an answer to it can answer no other request.
	id, err := s.ring.Seal(seal.RequestID, []byte(s.ID), []byte(rand.Text()))
	if err != nil {
		return rpc.Failure(rpc.ID{}, rpc.Error{Code: rpc.InternalError, Message: "internal error"})
	}
	shown = era.Asked(shown, era.Legacy, id)
	shown.ID = rpc.StringID(id)
	answer := make(chan rpc.Message, 1)
	s.mu.Lock()
	s.waiting[shown.ID] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, shown.ID)
		s.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, StateLife)
	defer cancel()
	if err := send(shown); err != nil {
		return rpc.Failure(shown.ID, rpc.Error{Code: rpc.InternalError, Message: "the client cannot be asked"})
	}
	select {
	case m := <-answer:
		return m
	case <-ctx.Done():
		return rpc.Failure(shown.ID, rpc.Error{Code: rpc.InternalError, Message: "the client did not answer"})
	}
}

// Deliver passes a client's answer to the request that waits for it. It is not ok if there is none.
func (s *Conversation) Deliver(m rpc.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.waiting[m.ID]
	if answer == nil {
		return false
	}
	delete(s.waiting, m.ID)
	answer <- m
	return true
}

// StateLife is the time that a client has to send its answers.
const StateLife = 15 * time.Minute
