package flow

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
)

// remember takes what a client of the legacy era says once, and a server of the modern era wants said with each request.
func (x exchange) remember(ctx context.Context) *answer.Answer {
	switch err := x.mayOpen(ctx); err {
	case nil:
	case link.ErrForbidden:
		x.link.SetLevel(x.Params.GetString("level"))
		return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
	default:
		return x.failed(err)
	}
	s, err := x.link.Opened(ctx, x.Who)
	if err != nil {
		return x.failed(err)
	}
	if s.Era() == era.Legacy {
		answer := x.call(ctx)
		if answer.Message.Error == nil {
			x.link.Note(x.Request.Method, x.Params)
		}
		return answer
	}
	switch x.Request.Method {
	case "logging/setLevel":
		x.link.SetLevel(x.Params.GetString("level"))
	default:
		uri := x.Params.GetString("uri")
		if uri == "" {
			return answer.Invalid("uri is missing")
		}
		on := x.Request.Method == "resources/subscribe"
		if x.link.Wanted(uri) == on {
			break
		}
		_, _, version, ok := x.link.Want([]string{uri}, on)
		if !ok {
			return answer.Invalid("too many resources; unsubscribe from some")
		}
		if err := x.link.Agrees(ctx, x.listening(), version); err != nil {
			if on {
				x.link.Want([]string{uri}, false)
			}
			return x.failed(err)
		}
	}
	return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
}

// setLevel tells all servers how much of their logs the client wants.
func (x exchange) setLevel(ctx context.Context) *answer.Answer {
	level := x.Params.GetString("level")
	if !slices.Contains(link.LogLevels, level) {
		return answer.Invalid("level is none of " + strings.Join(link.LogLevels, ", "))
	}
	if x.link != nil {
		return x.remember(ctx)
	}
	_, err := there(each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
		defer x.link.SetLevel(level) // which a session that is opened later is told
		if err := x.mayOpen(ctx); err != nil {
			return none{}, err
		}
		s, err := x.link.Opened(ctx, x.Who)
		if err != nil || s.Era() == era.Modern || !link.Offers(s, "logging") {
			return none{}, err
		}
		response, err := x.forward(ctx, x.Params, nil)
		if err == nil && response.Error != nil {
			err = answer.Of(response.Message)
		}
		return none{}, err
	}))
	if err != nil {
		return x.failed(err)
	}
	return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
}

// logs has a server of the legacy era, which is told once, say what the client wants of its log with this request. It says
// it with others', too: see wantsLog.
func (x Target) logs(ctx context.Context) error {
	if x.Client.Era == era.Legacy || x.Client.LogLevel == "" {
		return nil
	}
	s, err := x.link.Open(ctx, x.Who)
	if err != nil || s.Era() == era.Modern || !x.link.SaysLess(s, x.Client.LogLevel) {
		return err
	}
	params := rpc.Object{}.With("level", rpc.String(x.Client.LogLevel))
	op := ask.Operation{Principal: x.Who, Era: era.Legacy, Method: "logging/setLevel", Params: params, Server: x.link.Server.Name}
	permit, refused := x.g.o.Asker.Ask(ctx, op)
	if refused != nil { // the request goes on without: it was decided about by itself
		x.link.Server.Dropped("level of the log that is denied")
		return nil
	}
	defer permit.Done(context.WithoutCancel(ctx))
	if _, _, err = x.link.Request(ctx, x.Who, x.Client, "logging/setLevel", params); err == nil {
		x.link.Says(s, x.Client.LogLevel)
	}
	return err
}

// wantsLog reports whether the client wants a message of the server's log.
func (x *Call) wantsLog(m rpc.Message) bool {
	if x.Client.Era == era.Legacy {
		return true
	}
	params, _ := rpc.ParseObject(m.Params)
	wanted := slices.Index(link.LogLevels, x.Client.LogLevel)
	return wanted >= 0 && slices.Index(link.LogLevels, params.GetString("level")) >= wanted
}
