// Package logging writes the log that an operator reads: one line for each event, at a level, as text or JSON. [New] makes
// the [Log] of a process from its [Config].
//
// A flood of requests makes no flood of lines. A line about one request has the attributes that say which event it is in a
// group without a name: slog.Group("", "status", 503, "cause", cause). The first such line is written at once. Lines that
// are equal to it in level, message and group follow once a minute at most, as one that says how many they are: repeated=N.
// Other lines are all written: they tell of the service, and the last of them is how it is now.
//
// So no text that a client chooses belongs into such a group: with it, a client could have all its lines written.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
)

// Config is how a log is written: the keys below log.
type Config struct {
	Level  Level  `yaml:"level" default:"info" enum:"error,warn,info,debug" reload:"yes" doc:"The least level of the lines that are written. At debug as at any other level, lines hold no credential."`
	Format Format `yaml:"format" default:"text" enum:"json,text" doc:"The form of the lines. json: an object of JSON, with time, level and msg. text: key=value. What goes wrong before the configuration is read is said in text."`
	Access bool   `yaml:"access" reload:"yes" doc:"Writes a line for each request, too, at the level ACCESS, whatever log.level is: its route, status, time, size and caller, and no value of the request."`
}

// Level is the least level that is written.
type Level string

func (l Level) level() (at slog.Level) {
	_ = at.UnmarshalText([]byte(l)) // info, if there is none
	return at
}

// Format is the form of a line.
type Format string

// JSON makes each line an object of JSON. Otherwise it is text.
const JSON Format = "json"

// Access is the level of the lines about each request. A logger that has it enabled wants them; with [New] that is
// [Config.Access]. To other loggers they are less than [slog.LevelInfo].
const Access = slog.LevelInfo - 2

// Log is the log of a process.
type Log struct {
	*slog.Logger
	shared *shared
}

// shared is the part of a log that all its loggers have.
type shared struct {
	level   slog.LevelVar
	access  atomic.Bool
	repeats repeats
}

// New makes a log. Close it, so that no count is lost.
func New(to io.Writer, c Config) *Log {
	l := &Log{shared: &shared{}}
	l.Set(c)
	options := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: named}
	var lines slog.Handler = slog.NewTextHandler(to, options)
	if c.Format == JSON {
		lines = slog.NewJSONHandler(to, options)
	}
	l.Logger = slog.New(handler{lines, l.shared, ""})
	return l
}

// Set takes the level, and whether there are lines about each request, of another configuration.
func (l *Log) Set(c Config) {
	l.shared.level.Set(c.Level.level())
	l.shared.access.Store(c.Access)
}

// Close writes the counts of lines that were not written. Lines that come later are all written.
func (l *Log) Close() { l.shared.repeats.close() }

// named writes the name of our own level.
func named(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey && len(groups) == 0 && a.Value.Any() == Access {
		a.Value = slog.StringValue("ACCESS")
	}
	return a
}

// handler hands a record to the handler that writes it, or counts it.
type handler struct {
	slog.Handler
	shared *shared
	with   string // the attributes and groups that its lines have besides
}

// Enabled implements [slog.Handler].
func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	if level == Access {
		return h.shared.access.Load()
	}
	return level >= h.shared.level.Level()
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if event, repeats := eventOf(r); repeats && !h.shared.repeats.first(h.with+event, r, h.Handler) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.shared, h.with + fmt.Sprintf("%q", attrs)}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.shared, h.with + fmt.Sprintf("%q", name)}
}

// mostEvent bounds the bytes that are kept of a line that may repeat. A longer one is always written.
const mostEvent = 4 << 10

// eventOf is the event that a line is about, if such lines are not all written.
func eventOf(r slog.Record) (event string, repeats bool) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "" || a.Value.Kind() != slog.KindGroup {
			return true
		}
		event, repeats = fmt.Sprintf("%d %q", r.Level, r.Message), true
		for _, one := range a.Value.Group() {
			event += fmt.Sprintf(" %q=%q", one.Key, one.Value.String())
		}
		return false
	})
	if repeats {
		size := len(event)
		r.Attrs(func(a slog.Attr) bool { size += len(a.Value.String()); return true })
		repeats = size <= mostEvent
	}
	return event, repeats
}
