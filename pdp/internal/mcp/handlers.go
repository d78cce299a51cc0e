package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
)

// dischargeTime is how long one obligation may take. A longer one fails, and the request is refused.
const dischargeTime = 2 * time.Second

// newHandlers are the obligations that the configured gateway can discharge, besides redact.
func newHandlers(c ObligationsConfig, log *slog.Logger, now func() time.Time) (obligations.Handlers, error) {
	hooks := map[string]obligations.Handler{}
	for path, to := range c.webhooks() {
		hook, err := newWebhook(to, log)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		hooks[path] = hook
	}
	all := obligations.Handlers{}
	if c.Log != nil {
		all["log"] = obligations.Within(dischargeTime, (&logFile{path: c.Log.File, now: now}).write)
	}
	if c.Notification != nil {
		all["notification"] = hooks["obligations.notification"]
	}
	if len(c.Custom) > 0 {
		all["custom"] = func(ctx context.Context, o evaluation.Obligation) error {
			name, _ := o.Properties.Get("name")
			if hook := hooks[config.Entry("obligations.custom", name.Text())]; hook != nil {
				return hook(ctx, o)
			}
			return errors.New("this gateway has nobody for custom obligations of this name")
		}
	}
	return all, nil
}

// promised are the types of [newHandlers] without functions: for callers that ask and discharge nothing.
func (c ObligationsConfig) promised() obligations.Handlers {
	nothing := func(context.Context, evaluation.Obligation) error { return errors.New("nobody does it") }
	all := obligations.Handlers{}
	for name, given := range map[string]bool{"log": c.Log != nil, "notification": c.Notification != nil, "custom": len(c.Custom) > 0} {
		if given {
			all[name] = nothing
		}
	}
	return all
}

// said is an obligation as it is written down, and sent.
type said struct {
	Time       time.Time         `json:"time"`
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Properties evaluation.Object `json:"properties"`
	Policies   []string          `json:"policies"`
}

// newWebhook posts an obligation, signed as Standard Webhooks has it. It is done when the receiver has taken it.
func newWebhook(to WebhookConfig, log *slog.Logger) (obligations.Handler, error) {
	c := webhook.Config{URL: to.Webhook, SecretFile: to.KeyFile}
	if u, err := url.Parse(to.Webhook); err == nil && auth.IsLoopbackName(u.Hostname()) {
		c.Allow = []string{u.Hostname()}
	}
	sender, err := webhook.New([]webhook.Config{c}, webhook.Options{Logger: log, Timeout: dischargeTime})
	if err != nil {
		return nil, err
	}
	return obligations.Within(dischargeTime, func(ctx context.Context, o evaluation.Obligation) error {
		body, err := json.Marshal(said{time.Now().UTC(), o.ID, o.Type, o.Properties, o.Policies})
		if err != nil {
			return err
		}
		return sender.Once(ctx, uuid.Must(uuid.NewV7()).String(), body)
	}), nil
}

// logFile is where obligations of type log are written, a line each. A line is done when it is on disk.
type logFile struct {
	path string
	now  func() time.Time
	mu   sync.Mutex
}

func (l *logFile) write(ctx context.Context, o evaluation.Obligation) error {
	line, err := json.Marshal(said{l.now().UTC(), o.ID, o.Type, o.Properties, o.Policies})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := plainfile.OpenFile(l.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	cut, err := isCut(f)
	if cut {
		line = append([]byte{'\n'}, line...)
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// isCut reports whether the last line of a file has no end, as a full disk leaves it: the next would be a part of it.
func isCut(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return last[0] != '\n', err
}
