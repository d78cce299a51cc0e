package era

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
)

// cacheable are the methods whose results a modern client may keep.
var cacheable = []string{
	"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover",
}

// withInput are the methods that a modern server may answer by asking for input.
var withInput = []string{"tools/call", "prompts/get", "resources/read"}

// TakesInput reports whether a modern server may answer a method by asking for input, and so whether its client expects to
// be asked. To all other methods such a result is no answer at all.
func TakesInput(method string) bool { return slices.Contains(withInput, method) }

// Response is the response of a server as a client gets it. All that is not named here keeps its bytes.
//
// No cache may keep a result for others, or for later: the PDP decides anew each time. A client is asked for input by
// nothing but a modern result that says so, of a method that [TakesInput], whatever else a result has in it: such a result
// comes back as it is, for it is no answer yet, and the caller changes it to continue. Within the legacy era the error
// [URLRequired] comes back as it is, too: it is for [ShowPages]. A result of an unknown type is an error.
func Response(method string, m rpc.Message, from, to Era) rpc.Message {
	if m.Error != nil {
		m.Error = failure(method, m.Error, from, to)
		return m
	}
	o, err := m.ResultObject()
	kind := o.Get("resultType")
	switch {
	case err != nil:
		return unusable(m.ID)
	case from == Modern && o.GetString("resultType") == "input_required" && TakesInput(method):
		return m
	case from == Modern && kind != nil && o.GetString("resultType") != "complete", from == Legacy && isTask(o):
		return unusable(m.ID)
	}
	m.Result = answerOf(method, o, from, to).Text()
	return m
}

// answerOf is a result that is complete, as a client gets it.
func answerOf(method string, o rpc.Object, from, to Era) rpc.Object {
	planted := []string{"inputRequests", "requestState"}
	kept := slices.Contains(cacheable, method)
	if from == Legacy || to == Legacy {
		planted = append(planted, "resultType")
	}
	o = ofOneHop(o, from, to)
	if to == Legacy && kept {
		planted = append(planted, "ttlMs", "cacheScope")
	}
	o = o.Without(func(name string) bool { return slices.Contains(planted, name) })
	if to == Legacy {
		return o
	}
	o = with(o, "resultType", `"complete"`)
	if kept {
		o = with(with(o, "ttlMs", `0`), "cacheScope", `"private"`)
	}
	return o
}

// isTask reports whether a legacy result is the handle of a task, which was not asked for.
func isTask(o rpc.Object) bool { return o.Get("task").Kind() == '{' && o.Get("content") == nil }

// Ambiguous is data.type of an error in place of an answer that a server should not have given.
const Ambiguous = "upstream_ambiguous"

func instead(text string) rpc.Error {
	return rpc.Error{Code: rpc.InternalError, Message: text, Data: jsontext.Value(`{"type":"` + Ambiguous + `"}`)}
}

func unusable(id rpc.ID) rpc.Message {
	return rpc.Failure(id, instead("the server answered with a result of a kind that is not supported"))
}

// with is o with a member that has a certain value, and o itself if it has it already.
func with(o rpc.Object, name, value string) rpc.Object {
	if string(o.Get(name)) == value {
		return o
	}
	return o.With(name, jsontext.Value(value))
}

// failure is an error as a client of an era may get it.
func failure(method string, v jsontext.Value, from, to Era) jsontext.Value {
	e, err := rpc.ReadError(v)
	if err != nil {
		return instead("the server answered with an error that cannot be read").Value()
	}
	code := e.Code
	switch {
	case code == URLRequired && !(from == Legacy && to == Legacy): // of these two, ShowPages says which pages are shown
		e := instead("the server wants a page opened first, and says so by an error, which is not for clients of this revision")
		if from == Legacy {
			e.Code, e.Data = MissingCapability, jsontext.Value(`{"type":"`+Ambiguous+`","requiredCapabilities":{"elicitation":{"url":{}}}}`)
		}
		return e.Value()
	case to == Modern && code == ResourceNotFound && method == "resources/read":
		code = rpc.InvalidParams
	case from == Modern && to == Legacy && code == rpc.InvalidParams && method == "resources/read":
		code = ResourceNotFound
	case to == Modern && code == ResourceNotFound:
		code = rpc.InternalError
	case code == MissingCapability && from == Legacy && to == Modern && namesCapabilities(e.Data): // servers of both eras say it in both
	case reserved(code) && !(from == to && (to == Legacy || ofClient(code))):
		code = rpc.InternalError
	}
	if code == e.Code {
		return v
	}
	o, _ := rpc.ParseObject(v) // it was read as an error
	return o.With("code", jsontext.Value(strconv.Itoa(code))).Value()
}

// namesCapabilities reports whether the data of an error names capabilities that the server requires of its client.
func namesCapabilities(data jsontext.Value) bool {
	return objectOf(data).Get("requiredCapabilities").Kind() == '{'
}

// reserved reports whether only the modern protocol itself may use a code. In the legacy era it is any server's own.
func reserved(code int) bool { return lastReserved <= code && code <= HeaderMismatch }

// ofClient reports whether a reserved code of a modern server is about the client. The others are about a hop between.
func ofClient(code int) bool { return code == HeaderMismatch || code == MissingCapability }

// ownCodes are the codes of the gateway's refusals.
var ownCodes = []int{-32001, ResourceNotFound, -32003, -32401}

// ofResource are the methods to which a server may answer [ResourceNotFound].
var ofResource = []string{"resources/read", "resources/subscribe", "resources/unsubscribe"}

// Relayed returns [Response] of the response of a server, without the codes and members that only the gateway uses: those of
// its refusals, of its fulfilments, and of its own _meta.
func Relayed(method, server string, m rpc.Message, from, to Era) rpc.Message {
	if m.Error != nil {
		m.Error = errorFrom(method, server, m.Error)
	} else if o, err := m.ResultObject(); err == nil {
		m.Result = WithoutOwnMeta(o.Without(isFulfilment).Text())
	}
	return Response(method, m, from, to)
}

// NotificationFrom returns a notification of a server without members that only the gateway uses. The name of a list_changed
// says all.
func NotificationFrom(m rpc.Message) rpc.Message {
	if strings.HasSuffix(m.Method, "/list_changed") {
		m.Params = nil
		return m
	}
	m.Params = WithoutOwnMeta(m.Params)
	return m
}

func errorFrom(method, server string, v jsontext.Value) jsontext.Value {
	e, err := rpc.ReadError(v)
	if err != nil { // which [Response] has words for
		return v
	}
	plain, _ := rpc.ParseObject(v)
	if slices.Contains(ownCodes, e.Code) && !(e.Code == ResourceNotFound && slices.Contains(ofResource, method)) {
		plain = plain.With("code", jsontext.Value(fmt.Sprint(rpc.InternalError))).
			With("message", rpc.String(fmt.Sprintf("the server %s answered with the code %d: %s", server, e.Code, e.Message)))
	}
	if data, err := rpc.ParseObject(e.Data); err == nil {
		less := data.Without(func(name string) bool {
			ofRefusals := name == "type" || name == "authorizationRequest" || name == "suggestion"
			return ofRefusals || isFulfilment(name) || isOwn(name)
		})
		plain = plain.With("data", WithoutOwnMeta(less.Text()))
	}
	return plain.Text()
}

func isFulfilment(name string) bool { return name == "fulfilledBy" || name == "originalRequester" }

// Methods by which servers ask clients, in the legacy era by a request of their own, in the modern era within a result.
const (
	Elicit = "elicitation/create"
	Sample = "sampling/createMessage"
	Roots  = "roots/list"
)

// Takes reports whether a client that has these capabilities has said that it takes a request of a server.
func Takes(capabilities jsontext.Value, m rpc.Message) bool {
	can, params := objectOf(capabilities), objectOf(m.Params)
	switch m.Method {
	case Roots:
		return can.Get("roots").Kind() == '{'
	case Sample:
		withTools := params.Get("tools") != nil || params.Get("toolChoice") != nil
		return can.Get("sampling").Kind() == '{' && (!withTools || can.GetObject("sampling").Get("tools").Kind() == '{')
	case Elicit:
		return can.Get("elicitation").Kind() == '{' && takesMode(can.GetObject("elicitation"), params)
	}
	return false
}

// takesMode reports whether a client takes an elicitation of this mode. One that names no mode takes forms.
func takesMode(can, params rpc.Object) bool {
	form, url := can.Get("form").Kind() == '{', can.Get("url").Kind() == '{'
	switch mode := params.Get("mode"); {
	case mode == nil, params.GetString("mode") == "form":
		return form || !url
	case params.GetString("mode") == "url":
		return url
	}
	return false
}

// Asked is a request of a server as a client of an era takes it. A legacy client knows a page that it opens by an id, which
// is ours; a modern one does not. No client answers by a task.
func Asked(m rpc.Message, to Era, id string) rpc.Message {
	o, err := m.ParamsObject()
	if err != nil {
		return m
	}
	changed := o.Without(func(name string) bool { return name == "task" || name == "elicitationId" && m.Method == Elicit })
	if to == Legacy && m.Method == Elicit && o.GetString("mode") == "url" {
		changed = changed.With("elicitationId", rpc.String(id))
	}
	m.Params = changed.Text()
	return m
}

// ShowPages returns an error of code [URLRequired] as a legacy client is shown it: each page as show says, and no other word of
// the server's. It is not ok if the error is another, or if a page is not to be shown.
func ShowPages(v jsontext.Value, show func(rpc.Message) (shown rpc.Message, ok bool)) (jsontext.Value, bool) {
	e, err := rpc.ReadError(v)
	data, err2 := rpc.ParseObject(e.Data)
	pages, err3 := rpc.Elements(data.Get("elicitations"))
	if err != nil || err2 != nil || err3 != nil || e.Code != URLRequired || len(pages) == 0 {
		return nil, false
	}
	var shown []jsontext.Value
	for _, page := range pages {
		if objectOf(page).GetString("mode") != "url" {
			return nil, false
		}
		m, ok := show(rpc.Message{Method: Elicit, Params: page})
		if !ok {
			return nil, false
		}
		shown = append(shown, m.Params)
	}
	e.Message, e.Data = "the server wants a page opened first", rpc.Object{}.With("elicitations", rpc.Array(shown)).Value()
	return e.Value(), true
}
