package teams

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/yaml"
)

// Folder is where the manifests lie, seen from this package.
const Folder = "../../../docs/kubernetes-teams"

// Cluster is all that the manifests make.
type Cluster struct {
	flavors    map[string]flavor
	priorities map[string]priorityClass
	queues     map[string]clusterQueue
	local      map[string]localQueue
	namespaces map[string]*corev1.Namespace
	jobs       []*batchv1.Job
}

// File is one of the files, as text.
func File(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(Folder, name))
	return string(text), err
}

// Read takes in documents as `kubectl apply --validate=strict` would.
func Read(text string) (*Cluster, error) {
	all := &Cluster{
		flavors: map[string]flavor{}, priorities: map[string]priorityClass{}, queues: map[string]clusterQueue{},
		local: map[string]localQueue{}, namespaces: map[string]*corev1.Namespace{},
	}
	for _, document := range strings.Split(text, "\n---\n") {
		if err := all.add(document); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
	}
	return all, nil
}

func (c *Cluster) add(document string) error {
	var kind struct{ Kind, APIVersion string }
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return err
	}
	if kind.APIVersion != "kueue.x-k8s.io/v1beta2" {
		return c.addOwn(document)
	}
	switch kind.Kind {
	case "ResourceFlavor":
		return keep(c.flavors, document, func(one flavor) string { return one.Name })
	case "WorkloadPriorityClass":
		return keep(c.priorities, document, func(one priorityClass) string { return one.Name })
	case "ClusterQueue":
		return keep(c.queues, document, func(one clusterQueue) string { return one.Name })
	case "LocalQueue":
		return keep(c.local, document, func(one localQueue) string { return one.Namespace + "/" + one.Name })
	}
	return fmt.Errorf("nobody expects a %s", kind.Kind)
}

func keep[T any](all map[string]T, document string, name func(T) string) error {
	var one T
	if err := yaml.UnmarshalStrict([]byte(document), &one); err != nil {
		return err
	}
	if _, there := all[name(one)]; there || name(one) == "" {
		return fmt.Errorf("%q is there already, or no name", name(one))
	}
	all[name(one)] = one
	return nil
}

// addOwn judges what is Kubernetes' own by its code.
func (c *Cluster) addOwn(document string) error {
	strict := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := strict.Decode([]byte(document), nil, nil)
	if err != nil {
		return err
	}
	switch object := object.(type) {
	case *corev1.Namespace:
		c.namespaces[object.Name] = object
		return nil
	case *batchv1.Job:
		c.jobs = append(c.jobs, object)
		return validate(object.DeepCopy())
	}
	return fmt.Errorf("nobody expects a %T", object)
}

// validate fills in the API's defaults, and what its server would, and asks its own validation.
func validate(job *batchv1.Job) error {
	legacyscheme.Scheme.Default(job)
	internal, err := legacyscheme.Scheme.ConvertToVersion(job, runtime.InternalGroupVersioner)
	if err != nil {
		return err
	}
	made := internal.(*batch.Job)
	selected := map[string]string{"batch.kubernetes.io/controller-uid": "1"}
	made.Spec.Template.Labels = selected
	made.Spec.Selector = &metav1.LabelSelector{MatchLabels: selected}
	found := batchvalidation.ValidateJobSpec(&made.Spec, nil, corevalidation.PodValidationOptions{})
	return found.ToAggregate()
}
