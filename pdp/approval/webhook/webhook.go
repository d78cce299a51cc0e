// Package webhook tells other systems that something happened: a chat, a ticket
// system. Start with [New] and [Sender.Send]; a receiver uses [Verify].
//
// A message is a POST of JSON, signed as Standard Webhooks 1.0.0 has it:
//
//	Webhook-Id: the same for every attempt, so that a receiver recognises a repetition
//	Webhook-Timestamp: the second of this attempt, since 1970
//	Webhook-Signature: v1,BASE64 of HMAC-SHA256(secret, "id.timestamp.body")
//
// A receiver gets a message at least once. If it takes nothing for an hour, or refuses the message, it does not get it,
// and the log says so. Messages may arrive out of order. Of a receiver's answer only the status counts.
//
// The package connects only to public addresses and to those that the operator lists. It checks the address of each
// connection as the connection is made, so that no answer of a DNS server gets round the check. It follows no redirect,
// uses no proxy and keeps no connection, because each of these lets another choose where a message goes.
//
// It knows nothing of the content of messages.
package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config is one receiver.
type Config struct {
	// URL is where messages are posted. Its path and query may be secret: they are in no
	// log and no error.
	URL string `yaml:"url" secret:"path" required:"yes" doc:"Where messages are posted: https, or http to what allow lists. Its path and query may be secret, and are shown nowhere."`
	// SecretFile holds the key of the signatures.
	SecretFile string `yaml:"secret_file" path:"yes" required:"yes" doc:"A file that holds the key of the signatures: at least 32 bytes, not counting a newline at its end. It is read at start."`
	// Allow lists what may be reached although it is not public.
	Allow []string `yaml:"allow" doc:"What may be reached although it is not public: addresses, CIDR prefixes, or the host of url, which may then have any address."`
}

// Options say how messages are sent. The zero value is what a server uses.
type Options struct {
	// Logger takes what the operator should know; the default discards it. Receivers are
	// named in it by scheme and host.
	Logger *slog.Logger
	// Roots are the authorities to trust; nil is those of the system.
	Roots *x509.CertPool
	// Resolver finds the addresses of names; nil is the one of the system.
	Resolver *net.Resolver
	// Backoff is when attempts are made.
	Backoff Backoff
	// Timeout bounds one attempt, from the lookup of the name to the end of the answer;
	// the default is 15 s.
	Timeout time.Duration
	// InFlight bounds the attempts under way at each receiver; the default is 8.
	InFlight int
	// Waiting bounds the messages that are not delivered yet. A message beyond the bound is
	// given up at once. The default is no bound.
	Waiting int

	// Now is the time of signatures, Wait waits between attempts, and Jitter is a number
	// from 0 up to 1; the defaults are the real ones.
	Now    func() time.Time
	Wait   func(context.Context, time.Duration) error
	Jitter func() float64
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Backoff = cmp.Or(o.Backoff, Backoff{
		First:  time.Second,
		Most:   10 * time.Minute,
		Within: time.Hour,
		Tries:  15,
	})
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.InFlight = cmp.Or(o.InFlight, 8)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return o
}

// Sender sends to all receivers. It may be used from many goroutines.
type Sender struct {
	receivers []*receiver
	o         Options
	waiting   atomic.Int64 // messages
}

// New reads the secrets and finds every mistake that can be found without asking the
// network. Nothing is sent yet. An error names receivers by their place in configs.
func New(configs []Config, o Options) (*Sender, error) {
	s := &Sender{o: o.withDefaults()}
	seen := make(map[string]bool)
	var errs []error
	for i, c := range configs {
		r, err := newReceiver(c, s.o)
		if seen[c.URL] {
			err = errors.New("one before has the same url, and would get everything twice; delete one of them")
		}
		if seen[c.URL] = true; err != nil {
			errs = append(errs, fmt.Errorf("webhooks[%d]: %w", i, err))
		}
		s.receivers = append(s.receivers, r)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Send sends body to every receiver. It tries again as long as that may help, and returns when each receiver has the
// message or was given up. That takes up to an hour, so call it in a goroutine of its own; the caller bounds how many
// of them there are. The error is that of ctx, or says that id is not valid: an id is 1 to 128 of the characters A-Z,
// a-z, 0-9, _ and -.
//
// An id belongs to one body: a receiver takes a second message with the same id for a repetition. The event is the name
// of the message in the log; it is not sent.
func (s *Sender) Send(ctx context.Context, id, event string, body []byte) error {
	if !isID(id) {
		return errID
	}
	defer s.waiting.Add(-1)
	if n := s.waiting.Add(1); s.o.Waiting > 0 && n > int64(s.o.Waiting) {
		s.o.Logger.Error("a webhook is given up: too many wait already", "event", event, "id", id)
		return nil
	}
	m := message{id: id, event: event, body: body, end: s.o.Now().Add(s.o.Backoff.Within)}
	var all errgroup.Group
	for _, r := range s.receivers {
		all.Go(func() error { return s.deliver(ctx, r, m) })
	}
	return all.Wait()
}

var errID = errors.New("webhook: an id is 1 to 128 of the characters A-Z, a-z, 0-9, _ and -")

// message is what is sent, and until when it is worth sending.
type message struct {
	id, event string
	body      []byte
	end       time.Time
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
