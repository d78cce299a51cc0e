package server

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// listener takes what OpenTelemetry has to say of itself to the service's log. While
// something is being made of environment variables it gathers which of them are wrong.
type listener struct {
	log *slog.Logger

	mu    sync.Mutex
	made  bool
	wrong []string
}

// listen has OpenTelemetry say all to this log from now on; it is one for the process.
func listen(to *slog.Logger) *listener {
	l := &listener{log: to}
	otel.SetErrorHandler(l)
	otel.SetLogger(logr.FromSlogHandler(confidant{l}))
	return l
}

const (
	certificateVariables = "OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE or _CLIENT_KEY"
	// unsaidVariable is the one whose errors say least of where they come from.
	unsaidVariable = "OTEL_RESOURCE_ATTRIBUTES"
)

// unread are errors by which variables they are of. The value comes after, and is a secret in some.
var unread = []struct {
	begins *regexp.Regexp
	name   string // "" is what the error says
}{
	{regexp.MustCompile(`^invalid (OTEL_\w+) value`), ""},
	{regexp.MustCompile(`^(failed to load TLS|read tls|create tls)`), certificateVariables},
	{regexp.MustCompile(`^unsupported sampler`), "OTEL_TRACES_SAMPLER"},
	{regexp.MustCompile(`^(parsing sampler argument|invalid trace ID ratio)`), "OTEL_TRACES_SAMPLER_ARG"},
	{regexp.MustCompile(`^(parse headers|escape header value)`), "OTEL_EXPORTER_OTLP_HEADERS"},
	{regexp.MustCompile(`^parse duration`), "OTEL_EXPORTER_OTLP_TIMEOUT"},
	{regexp.MustCompile(`^(parse url|parse endpoint url)`), "OTEL_EXPORTER_OTLP_ENDPOINT"},
}

// variableOf names the variable that an error is of; "" where it is of none that is known.
func variableOf(text string) string {
	for _, u := range unread {
		if m := u.begins.FindStringSubmatch(text); m != nil {
			if u.name == "" {
				return m[1]
			}
			return u.name
		}
	}
	return ""
}

// Handle implements [otel.ErrorHandler].
func (l *listener) Handle(err error) {
	if name := variableOf(err.Error()); name != "" || !l.ready() {
		l.mistaken(name)
		return
	}
	l.log.Warn("OpenTelemetry reports an error", "error", err)
}

func (l *listener) ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// mistaken is told of a variable that cannot be read.
func (l *listener) mistaken(name string) {
	if name == "" {
		name = unsaidVariable
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made {
		l.log.Warn("OpenTelemetry cannot read an environment variable", "name", name)
		return
	}
	l.wrong = append(l.wrong, name)
}

// mistakes are those of the variables so far.
func (l *listener) mistakes() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = true
	if len(l.wrong) == 0 {
		return nil
	}
	slices.Sort(l.wrong)
	return fmt.Errorf("these environment variables cannot be read: %s; correct or unset them", strings.Join(slices.Compact(l.wrong), ", "))
}

// confidant takes what OpenTelemetry logs by itself. With each line come values, of headers
// as well, so that nothing of a line is passed on but what it is about.
type confidant struct{ *listener }

// Enabled implements [slog.Handler]. What is no error is OpenTelemetry's own business.
func (c confidant) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle implements [slog.Handler].
func (c confidant) Handle(_ context.Context, r slog.Record) error {
	name := variableOf(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "environment variable" {
			name = a.Value.String() // its name, that is
		}
		return true
	})
	if name != "" {
		c.mistaken(name)
	} else {
		c.log.Warn("OpenTelemetry reports an error", "error", r.Message)
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (c confidant) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements [slog.Handler].
func (c confidant) WithGroup(string) slog.Handler { return c }
