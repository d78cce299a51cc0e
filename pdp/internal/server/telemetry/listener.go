package telemetry

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
)

// listener writes the errors of OpenTelemetry itself to the service's log. While an exporter is made of environment
// variables, it gathers those that cannot be read: OpenTelemetry would go on with a default, and log their values.
type listener struct {
	log *slog.Logger

	mu    sync.Mutex
	made  bool
	wrong []string
}

// listen makes a listener that hears every error of OpenTelemetry from now on. The process has one listener: a later one
// takes its place.
func listen(to *slog.Logger) *listener {
	l := &listener{log: to}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { l.hear(err.Error(), err.Error()) }))
	otel.SetLogger(funcr.New(func(_, line string) {
		message, _, _ := strings.Cut(line, ` "error"=`) // values follow, of headers as well
		l.hear(line, message)
	}, funcr.Options{}))
	return l
}

// hear takes an error, and the part of it that may be logged.
func (l *listener) hear(text, shown string) {
	quoted, all := variables(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.made && len(quoted) > 0:
		l.wrong = append(l.wrong, quoted...)
	case !l.made:
		l.wrong = append(l.wrong, "one of "+strings.Join(all, ", "))
	case len(quoted) > 0:
		l.log.Warn("OpenTelemetry cannot read an environment variable", "name", strings.Join(quoted, ", "))
	default:
		l.log.Warn("OpenTelemetry reports an error", "error", shown)
	}
}

var variableName = regexp.MustCompile(`OTEL_[A-Z_]+`)

// variables are the variables of OpenTelemetry that an error is about, because it has the name or a part of the value; and
// all that are set. Values may be secrets.
func variables(text string) (quoted, all []string) {
	quoted = variableName.FindAllString(text, -1)
	for _, assignment := range os.Environ() {
		name, value, _ := strings.Cut(assignment, "=")
		if !strings.HasPrefix(name, "OTEL_") {
			continue
		}
		all = append(all, name)
		parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(",= ", r) })
		if slices.ContainsFunc(parts, func(part string) bool { return len(part) > 3 && strings.Contains(text, part) }) {
			quoted = append(quoted, name)
		}
	}
	slices.Sort(all)
	return quoted, all
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
