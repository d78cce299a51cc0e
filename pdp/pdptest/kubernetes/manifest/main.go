// Manifest renders a chart of Helm, or a kustomization, and prints the objects as JSON, one a line. Each is decoded strictly into
// the type that Kubernetes has for its kind, so that a member that is misspelt, or has another type, is an error. Of a file of
// Docker Compose it prints what Compose makes of it.
//
//	manifest chart DIR [VALUES...]     VALUES are files, as of helm -f; the chart is linted, too
//	manifest kustomization DIR
//	manifest compose FILE [NAME=VALUE...]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// kinds are those that our files have.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":                     func() any { return new(apps.StatefulSet) },
	"v1 ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1 Service":                              func() any { return new(core.Service) },
	"v1 ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var text []byte
	var err error
	switch {
	case len(args) >= 2 && args[0] == "chart":
		text, err = chart(args[1], args[2:])
	case len(args) == 2 && args[0] == "kustomization":
		text, err = kustomization(args[1])
	case len(args) >= 2 && args[0] == "compose":
		return compose(args[1], args[2:])
	default:
		err = errors.New("usage: manifest chart DIR [VALUES...] | kustomization DIR | compose FILE [NAME=VALUE...]")
	}
	if err != nil {
		return err
	}
	return objects(text)
}

func compose(file string, environment []string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(environment))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	return err
}

func kustomization(dir string) ([]byte, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return made.AsYaml()
}

func chart(dir string, files []string) ([]byte, error) {
	values := map[string]any{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var more map[string]any
		if err := yaml.UnmarshalStrict(text, &more); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values = util.MergeTables(more, values)
	}
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "policy-service", Namespace: "default", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	made, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, m := range lint.RunAll(dir, values, "default").Messages {
		if m.Severity >= support.WarningSev {
			failed = append(failed, m)
		}
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&text, "---\n%s\n", made[name])
		}
	}
	return text.Bytes(), errors.Join(failed...)
}

// objects prints each document.
func objects(text []byte) error {
	for documents := goyaml.NewDecoder(bytes.NewReader(text)); ; {
		var node goyaml.Node
		if err := documents.Decode(&node); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		one, err := goyaml.Marshal(&node)
		if err != nil {
			return err
		}
		object, err := yaml.YAMLToJSONStrict(one)
		if err != nil {
			return err
		}
		if string(object) == "null" {
			continue
		}
		var is struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(object, &is); err != nil {
			return err
		}
		make := kinds[is.APIVersion+" "+is.Kind]
		if make == nil {
			return fmt.Errorf("%s %s %s: no kind that is known here", is.APIVersion, is.Kind, is.Metadata.Name)
		}
		wrong, err := strict.UnmarshalStrict(object, make())
		if err = errors.Join(append(wrong, err)...); err != nil {
			return fmt.Errorf("%s %s: %w", is.Kind, is.Metadata.Name, err)
		}
		fmt.Println(string(object))
	}
}
