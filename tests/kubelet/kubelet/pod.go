package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is what is asked of a kubelet, in plain words.
type Pod struct {
	Name string
	// Run one after the other before the others, except sidecars, which stay.
	Init       []Container
	Containers []Container
}

// Container is one of a pod's.
type Container struct {
	Name string
	// How many of each resource it asks for.
	Wants map[string]int64
	// Whether it is an init container that stays.
	Sidecar bool
}

// One is a pod of one container that asks for devices of one resource.
func One(name, resource string, count int64) Pod {
	return Pod{Name: name, Containers: []Container{Wanting(resource, count)}}
}

// Wanting is a container that asks for devices of one resource.
func Wanting(resource string, count int64) Container {
	return Container{Name: "main", Wants: map[string]int64{resource: count}}
}

// Namespace is where all pods are.
const Namespace = "lab"

// all are its containers in the order in which the kubelet admits them.
func (p Pod) all() []Container {
	return append(append([]Container{}, p.Init...), p.Containers...)
}

// uid is its name: no two pods of a test have the same.
func (p Pod) uid() types.UID { return types.UID("uid-" + p.Name) }

// spec is the pod as Kubernetes writes it.
func (p Pod) spec() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: meta.ObjectMeta{Namespace: Namespace, Name: p.Name, UID: p.uid()},
		Spec:       v1.PodSpec{InitContainers: specs(p.Init), Containers: specs(p.Containers)},
	}
}

func specs(containers []Container) []v1.Container {
	var specs []v1.Container
	for _, c := range containers {
		wants := v1.ResourceList{}
		for name, count := range c.Wants {
			wants[v1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
		}
		spec := v1.Container{Name: c.Name, Resources: v1.ResourceRequirements{Limits: wants, Requests: wants}}
		if c.Sidecar {
			always := v1.ContainerRestartPolicyAlways
			spec.RestartPolicy = &always
		}
		specs = append(specs, spec)
	}
	return specs
}
