package era

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

type HeaderParam struct{}

func HeaderParams(schema jsontext.Value) ([]HeaderParam, error) { return nil, nil }
func CheckParamHeaders(h http.Header, p []HeaderParam, arguments jsontext.Value) *rpc.Error {
	return nil
}
func ParamHeaders(p []HeaderParam, arguments jsontext.Value) http.Header { return nil }
func Response(method string, m rpc.Message, from, to Era) rpc.Message     { return m }
func Initialized(server jsontext.Value, e Era, version string) (jsontext.Value, error) {
	return server, nil
}
func Discovered(server jsontext.Value, e Era) (jsontext.Value, error) { return server, nil }

type Client struct {
	Version            string
	Info, Capabilities jsontext.Value
	LogLevel           string
}

func ToModern(params rpc.Object, c Client) rpc.Object { return params }

type Meta struct {
	Version, LogLevel    string
	Client, Capabilities jsontext.Value
}

func CheckHeaders(h http.Header, m rpc.Message, params rpc.Object) (Meta, *rpc.Error) {
	return Meta{}, nil
}
func Notification(m rpc.Message, from, to Era, id rpc.ID) rpc.Message { return m }

func ReadMeta(params rpc.Object) (Meta, *rpc.Error) { return Meta{}, nil }
