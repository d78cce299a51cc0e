package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// TestSecretsOfTheGatewayReachNoClient: a server repeats the gateway's credential for it, or a variable that it was
// started with, in a list, an error and a result. It is counted, and stands in no log.
func TestSecretsOfTheGatewayReachNoClient(t *testing.T) {
	t.Parallel()
	const secret = "0123456789-abcdef-"
	for _, over := range []string{"http", "stdio"} {
		for _, era := range eras {
			t.Run(over+" "+era, func(t *testing.T) {
				t.Parallel()
				counts := sdkmetric.NewManualReader()
				s := newSiege(t, camp{
					program: over == "stdio",
					deps:    mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))},
					answers: mcptest.Answers{
						Tools: `[{"name":"look","description":"with ` + secret + `","inputSchema":{"type":"object"}}]`,
						Handle: func(c *mcptest.Call) bool {
							switch {
							case c.Method != "tools/call":
								return false
							case strings.Contains(string(c.Params), "fails"):
								c.Error(`{"code":-32000,"message":"no ` + secret + `"}`)
							case strings.Contains(string(c.Params), "breaks"):
								c.Raw(http.StatusInternalServerError, "text/plain", "it breaks: "+secret+"\n")
							default:
								c.Result(`{"content":[{"type":"text","text":"` + secret + `"}],"kept":1.0}`)
							}
							return true
						}},
					change: func(c *mcp.Config) {
						u := c.Upstreams["rec"]
						if over == "http" {
							u.Auth.HeaderFile = secretFile(t, "Bearer "+secret+"\n")
						} else {
							u.EnvFiles, u.Secret = map[string]string{"OWN": secretFile(t, secret+"\n")}, []string{"OWN"}
						}
						c.Upstreams["rec"] = u
					},
				})
				v := s.visitor(era, nil)
				said := v.ask("tools/list", `{}`).String()
				for _, arguments := range []string{`{"fails":1}`, `{}`} {
					said += v.call("look", arguments).String()
				}
				if over == "http" {
					said += v.call("look", `{"breaks":1}`).String()
				}
				if strings.Contains(said, secret) || strings.Contains(s.logs.String(), secret) {
					t.Errorf("%s\n%s", said, s.logs)
				}
				for _, want := range []string{"with [masked]", "no [masked]", `"text":"[masked]"}],"kept":1.0`} {
					if !strings.Contains(said, want) {
						t.Errorf("%s is not in %s", want, said)
					}
				}
				var all metricdata.ResourceMetrics
				orFail(t, counts.Collect(t.Context(), &all))
				masked := int64(0)
				for _, m := range all.ScopeMetrics[0].Metrics {
					if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "policy_service.mcp.masked" {
						server, _ := sum.DataPoints[0].Attributes.Value("server")
						masked = sum.DataPoints[0].Value
						if server.AsString() != "rec" {
							t.Error(server)
						}
					}
				}
				if masked < 3 {
					t.Errorf("%d were counted", masked)
				}
			})
		}
	}
}
