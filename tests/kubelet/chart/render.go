// Package chart renders the Helm chart with Helm's own engine and judges the result as the API server would.
package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Folder is where the chart lies, seen from this package.
const Folder = "../../../deviceplugin/chart"

// Render does what `helm template` does: values over the chart's own, checked against its schema, templates filled in,
// and the result cut into documents. NOTES.txt is rendered and left out.
func Render(values string) ([]string, error) {
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, fmt.Errorf("the values are no YAML: %w", err)
	}
	chart, err := loader.Load(Folder)
	if err != nil {
		return nil, fmt.Errorf("the chart cannot be loaded: %w", err)
	}
	release := chartutil.ReleaseOptions{Name: "tranche", Namespace: "gpu", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	return documents(files), nil
}

// documents are all that the files hold, in the order of their names.
func documents(files map[string]string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, document := range strings.Split(files[name], "\n---\n") {
			if strings.TrimSpace(document) != "" {
				found = append(found, document)
			}
		}
	}
	return found
}
