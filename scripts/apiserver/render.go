// Renders the manifests of deploy/ as kubectl and Helm do, without a cluster: kustomize as in kubectl, and templates by
// the template engine of Helm with the functions that the chart uses. Prints YAML documents.
//
//	render-manifests kustomize DIR
//	render-manifests chart DIR NAMESPACE [VALUES.yaml]
package main

import (
	"bytes"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"k8s.io/cli-runtime/pkg/kustomize"
	"sigs.k8s.io/kustomize/pkg/fs"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

var functions = template.FuncMap{
	"default": func(fallback, value interface{}) interface{} {
		if value == nil || value == "" || value == 0 {
			return fallback
		}
		return value
	},
	"quote": func(value interface{}) string { return strconv.Quote(fmt.Sprint(value)) },
	"toYaml": func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	},
	"nindent": func(spaces int, text string) string {
		indent := "\n" + strings.Repeat(" ", spaces)
		return indent + strings.ReplaceAll(text, "\n", indent)
	},
}

func read(path string) (object, error) {
	text, err := ioutil.ReadFile(path)
	if err != nil {
		return nil, err
	}
	parsed := object{}
	return parsed, yaml.Unmarshal(text, &parsed)
}

// merge writes the values of `over` into `into`, objects key by key.
func merge(into, over object) {
	for key, value := range over {
		inner, isObject := value.(object)
		if below, ok := into[key].(object); ok && isObject {
			merge(below, inner)
		} else {
			into[key] = value
		}
	}
}

func chart(folder, namespace string, files []string) error {
	meta, err := read(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return err
	}
	values, err := read(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		over, err := read(file)
		if err != nil {
			return err
		}
		merge(values, over)
	}
	data := object{
		"Values":  values,
		"Chart":   object{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
		"Release": object{"Name": meta["name"], "Namespace": namespace},
	}
	templates, err := filepath.Glob(filepath.Join(folder, "templates", "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range templates {
		text, err := ioutil.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := template.New(filepath.Base(path)).Option("missingkey=error").Funcs(functions).Parse(string(text))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, data); err != nil {
			return err
		}
		if strings.TrimSpace(out.String()) != "" {
			fmt.Printf("---\n%s\n", strings.TrimSpace(out.String()))
		}
	}
	return nil
}

func main() {
	var err error
	switch arguments := os.Args[1:]; {
	case len(arguments) == 2 && arguments[0] == "kustomize":
		err = kustomize.RunKustomizeBuild(os.Stdout, fs.MakeRealFS(), arguments[1])
	case len(arguments) >= 3 && arguments[0] == "chart":
		err = chart(arguments[1], arguments[2], arguments[3:])
	default:
		err = fmt.Errorf("usage: render-manifests kustomize DIR | chart DIR NAMESPACE [VALUES.yaml]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
