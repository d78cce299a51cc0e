package main

import (
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
)

// The bill of materials is CycloneDX 1.6, in which number and time may be left out: SPDX wants a name that is never used
// again.
type (
	bill struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Time      string    `json:"timestamp,omitempty"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		URL        string     `json:"purl"`
		Licenses   []license  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	license struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

func componentOf(kind, name, version, sum string) component {
	url := "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := component{Type: kind, Ref: url, Name: name, Version: version, URL: url}
	if sum != "" { // of a module's files and their names, as in go.sum; it is of no single file, and so no hash of CycloneDX
		c.Properties = []property{{"go.sum", sum}}
	}
	return c
}

// billOf is what the binaries are made of, by what the go command wrote into each: a module that only some platforms need
// is in it, too.
func billOf(binaries []binary) ([]byte, error) {
	first := binaries[0]
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Time: first.Time}}
	b.Metadata.Component = componentOf("application", first.info.Main.Path, first.Version, "")
	ours := license{}
	ours.License.ID = "Apache-2.0"
	b.Metadata.Component.Licenses = []license{ours}
	b.Components = []component{componentOf("library", "stdlib", strings.TrimPrefix(first.Go, "go"), "")}
	for _, binary := range binaries {
		for _, m := range binary.info.Deps {
			b.add(m)
		}
	}
	slices.SortFunc(b.Components, func(x, y component) int { return strings.Compare(x.Ref, y.Ref) })
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

func (b *bill) add(m *debug.Module) {
	if m.Replace != nil {
		m = m.Replace
	}
	if !slices.ContainsFunc(b.Components, func(c component) bool { return c.Name == m.Path && c.Version == m.Version }) {
		b.Components = append(b.Components, componentOf("library", m.Path, m.Version, m.Sum))
	}
}
