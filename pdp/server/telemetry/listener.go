package telemetry

import (
	"cmp"
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

// listener writes the errors of OpenTelemetry itself to the service's log. While an exporter is
// made of environment variables, the listener gathers which of them are wrong.
type listener struct {
	log *slog.Logger

	mu    sync.Mutex
	made  bool
	wrong []string
}

// listen makes a listener that hears every error of OpenTelemetry from now on. The process has one
// listener: a later one takes its place.
func listen(to *slog.Logger) *listener {
	l := &listener{log: to}
	otel.SetErrorHandler(l)
	otel.SetLogger(logr.FromSlogHandler(confidant{l}))
	return l
}

const (
	certificateVariables = "OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE or _CLIENT_KEY"
	// unsaidVariable is the variable whose errors say least about their cause.
	unsaidVariable = "OTEL_RESOURCE_ATTRIBUTES"
)

// unread are the beginnings of errors, with the variables that cause them. The value of the
// variable comes after the beginning, and may be a secret.
var unread = []struct {
	begins *regexp.Regexp
	name   string // "" if the error has it
}{
	{regexp.MustCompile(`^invalid (OTEL_\w+) value`), ""},
	{regexp.MustCompile(`^(failed to load TLS|read tls|create tls)`), certificateVariables},
	{regexp.MustCompile(`^unsupported sampler`), "OTEL_TRACES_SAMPLER"},
	{regexp.MustCompile(`^(parsing sampler argument|invalid trace ID ratio)`), "OTEL_TRACES_SAMPLER_ARG"},
	{regexp.MustCompile(`^(parse headers|escape header value)`), "OTEL_EXPORTER_OTLP_HEADERS"},
	{regexp.MustCompile(`^parse duration`), "OTEL_EXPORTER_OTLP_TIMEOUT"},
	{regexp.MustCompile(`^(parse url|parse endpoint url)`), "OTEL_EXPORTER_OTLP_ENDPOINT"},
}

// variableOf names the variable that causes an error; "" if no known variable does.
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

// mistaken keeps or logs the name of a variable that cannot be read.
func (l *listener) mistaken(name string) {
	name = cmp.Or(name, unsaidVariable)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made {
		l.log.Warn("OpenTelemetry cannot read an environment variable", "name", name)
		return
	}
	l.wrong = append(l.wrong, name)
}

// mistakes are the variables so far that cannot be read. Later ones are logged.
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

// confidant takes the lines that OpenTelemetry logs by itself. A line has values with it, of
// headers as well, so only the message is passed on.
type confidant struct{ *listener }

// Enabled implements [slog.Handler]. Only errors are passed on.
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
