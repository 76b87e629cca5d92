// Package kubelet is a process with the parts of a kubelet that have to do with devices: Kubernetes' own device
// manager and its own server of pod resources, admission in the kubelet's order, and nothing else. What a
// kubelet would hear of an API server and a container runtime, its test tells it.
//
// It is a process of its own so that it can be killed as a kubelet is: what the next one knows is the checkpoint.
package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// role is the variable by which a program is told to be the kubelet.
const role = "TRANCHE_TEST_KUBELET"

// BeIfAsked makes this process the kubelet if it was started as one, and does not return then.
func BeIfAsked() {
	if os.Getenv(role) == "" {
		return
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Kubelet", new(Service)); err != nil {
		panic(err)
	}
	// Until the test hangs up, or dies.
	server.ServeConn(stdio{os.Stdin, os.Stdout})
	os.Exit(0)
}

type stdio struct {
	io.Reader
	io.Writer
}

func (stdio) Close() error { return nil }

// Service is what a test may have its kubelet do.
type Service struct {
	manager *devicemanager.ManagerImpl
	pods    activePods
	sources sources
	// A kubelet admits one pod after the other; containers start side by side.
	admission sync.Mutex
}

// Beginning is what a kubelet finds when it starts.
type Beginning struct {
	// Where its plugins and its checkpoint are.
	Dir string
	// Where it tells which pod has what.
	PodsSocket string
	// What the container runtime says is running.
	Running []Place
}

// Place is a container of a pod.
type Place struct{ Pod, Container string }

// Nothing is no argument, or no answer.
type Nothing struct{}

// Start starts the device manager. It believes no pod gone before SourcesSeen.
func (s *Service) Start(begin Beginning, _ *Nothing) error {
	logger := klog.Background()
	s.pods.pods = map[string]*v1.Pod{}
	manager, err := newManager(logger, filepath.Join(begin.Dir, "kubelet.sock"), nil, topologymanager.NewFakeManager())
	if err != nil {
		return err
	}
	s.manager = manager
	containers, running := containermap.NewContainerMap(), sets.New[string]()
	for _, place := range begin.Running {
		id := place.Pod + "/" + place.Container
		containers.Add(string(Pod{Name: place.Pod}.uid()), place.Container, id)
		running.Insert(id)
	}
	if err := manager.Start(logger, s.pods.GetActivePods, &s.sources, containers, running); err != nil {
		return err
	}
	return servePods(begin.PodsSocket, &s.pods, manager)
}

// SourcesSeen says that every pod was heard of.
func (s *Service) SourcesSeen(_ Nothing, _ *Nothing) error {
	s.sources.seen.Store(true)
	return nil
}

// Admit admits a pod as the kubelet does: it counts as active, and then each container is given its devices.
func (s *Service) Admit(pod Pod, _ *Nothing) error {
	s.admission.Lock()
	defer s.admission.Unlock()
	spec := pod.spec()
	s.pods.add(spec)
	containers := append(append([]v1.Container{}, spec.Spec.InitContainers...), spec.Spec.Containers...)
	for at := range containers {
		if err := s.manager.Allocate(spec, &containers[at]); err != nil {
			s.pods.remove(pod.Name)
			return err
		}
	}
	return nil
}

// Ended says that a pod is gone.
func (s *Service) Ended(pod string, _ *Nothing) error {
	s.pods.remove(pod)
	return nil
}

// Equipment is what a container runtime would be told.
type Equipment struct {
	CDI  []string
	Envs map[string]string
	// How many mounts and device nodes there are besides.
	Mounts, Nodes int
}

// StartContainer is asked for what a container gets, when it is about to be created.
func (s *Service) StartContainer(place Place, gets *Equipment) error {
	spec, found := s.pods.GetPodByName(Namespace, place.Pod)
	if !found {
		return fmt.Errorf("there is no pod %s", place.Pod)
	}
	for _, container := range append(append([]v1.Container{}, spec.Spec.InitContainers...), spec.Spec.Containers...) {
		if container.Name == place.Container {
			options, err := s.manager.GetDeviceRunContainerOptions(context.Background(), spec, &container)
			if err != nil {
				return err
			}
			*gets = equipment(options)
			return nil
		}
	}
	return fmt.Errorf("pod %s has no container %s", place.Pod, place.Container)
}

func equipment(options *devicemanager.DeviceRunContainerOptions) Equipment {
	gets := Equipment{Envs: map[string]string{}, Mounts: len(options.Mounts), Nodes: len(options.Devices)}
	for _, device := range options.CDIDevices {
		gets.CDI = append(gets.CDI, device.Name)
	}
	for _, env := range options.Envs {
		gets.Envs[env.Name] = env.Value
	}
	return gets
}

// Count is how many devices of a resource there are, and how many of them may be given to pods.
type Count struct{ Capacity, Allocatable int64 }

// Capacity is what the node's status would show, for each resource.
func (s *Service) Capacity(_ Nothing, counts *map[string]Count) error {
	capacity, allocatable, _ := s.manager.GetCapacity()
	for resource, quantity := range capacity {
		free := allocatable[resource]
		(*counts)[string(resource)] = Count{quantity.Value(), free.Value()}
	}
	return nil
}

// Devices are those that a container has, by resource.
func (s *Service) Devices(place Place, ids *[]string) error {
	for _, devices := range s.manager.GetDevices(string(Pod{Name: place.Pod}.uid()), place.Container) {
		*ids = append(*ids, sets.List(sets.KeySet(devices))...)
	}
	return nil
}

// Ailing are the devices of a container that the pod's status would show as unhealthy.
func (s *Service) Ailing(place Place, ids *[]string) error {
	status := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: place.Container}}}
	s.manager.UpdateAllocatedResourcesStatus(Pod{Name: place.Pod}.spec(), &status)
	for _, resource := range status.ContainerStatuses[0].AllocatedResourcesStatus {
		for _, device := range resource.Resources {
			if device.Health != v1.ResourceHealthStatusHealthy {
				*ids = append(*ids, string(device.ResourceID))
			}
		}
	}
	return nil
}

// sources are where a kubelet hears of pods.
type sources struct{ seen atomic.Bool }

// AddSource implements config.SourcesReady.
func (*sources) AddSource(string) {}

// AllReady implements config.SourcesReady.
func (s *sources) AllReady() bool { return s.seen.Load() }
