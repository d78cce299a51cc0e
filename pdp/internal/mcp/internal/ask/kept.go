package ask

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// KeptTool is a tool for another gateway: what the gateway's own questions have of it, without its definition and mappings.
type KeptTool struct {
	Server     string         `json:"server"`
	Name       string         `json:"name"`
	Shown      string         `json:"shown"`
	Digest     string         `json:"digest"`
	Properties jsontext.Value `json:"properties"`
}

// Keep is the tool for another gateway.
func (t *Tool) Keep() (KeptTool, error) {
	properties, err := t.resource.Properties.MarshalJSON()
	return KeptTool{t.Server, t.Name, t.Shown, t.Digest, properties}, err
}

// Tool is the tool that another gateway has kept.
func (k KeptTool) Tool() (*Tool, error) {
	properties, err := evaluation.ParseObject(k.Properties, hintLimits)
	return &Tool{
		Server: k.Server, Name: k.Name, Shown: k.Shown, Digest: k.Digest,
		resource: evaluation.Entity{Type: "tool", ID: k.Server + ":" + k.Name, Properties: properties},
	}, err
}
