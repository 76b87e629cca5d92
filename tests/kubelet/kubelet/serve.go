package kubelet

import (
	"context"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// servePods answers which pod has what, with the kubelet's own server.
func servePods(socket string, pods *activePods, manager *devicemanager.ManagerImpl) error {
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	providers := podresources.PodResourcesProviders{
		Pods: pods, Devices: held{manager}, Cpus: nothing{}, Memory: nothing{}, DynamicResources: nothing{},
	}
	podresourcesv1.RegisterPodResourcesListerServer(server,
		podresources.NewV1PodResourcesServer(context.Background(), providers))
	go func() { _ = server.Serve(listener) }()
	return nil
}

// activePods are the pods that the kubelet admitted and that have not ended.
type activePods struct {
	mutex sync.Mutex
	pods  map[string]*v1.Pod
}

func (a *activePods) add(pod *v1.Pod) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.pods[pod.Name] = pod
}

func (a *activePods) remove(name string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.pods, name)
}

// GetActivePods implements podresources.PodsProvider.
func (a *activePods) GetActivePods() []*v1.Pod {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var pods []*v1.Pod
	for _, pod := range a.pods {
		pods = append(pods, pod)
	}
	return pods
}

// GetPods implements podresources.PodsProvider.
func (a *activePods) GetPods() []*v1.Pod { return a.GetActivePods() }

// GetPodByName implements podresources.PodsProvider.
func (a *activePods) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	pod, found := a.pods[name]
	return pod, found && namespace == Namespace
}

// held is what pods hold, as the kubelet's container manager puts it from the device manager's answer.
type held struct{ *devicemanager.ManagerImpl }

// GetDevices implements podresources.DevicesProvider.
func (h held) GetDevices(uid, container string) []*podresourcesv1.ContainerDevices {
	return listed(h.ManagerImpl.GetDevices(uid, container))
}

// GetAllocatableDevices implements podresources.DevicesProvider.
func (h held) GetAllocatableDevices() []*podresourcesv1.ContainerDevices {
	return listed(h.ManagerImpl.GetAllocatableDevices())
}

// listed leaves out NUMA nodes, which nobody here asks for.
func listed(instances devicemanager.ResourceDeviceInstances) []*podresourcesv1.ContainerDevices {
	var all []*podresourcesv1.ContainerDevices
	for resource, devices := range instances {
		for id := range devices {
			all = append(all, &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
		}
	}
	return all
}

// nothing is the managers of CPUs, memory and claims, whose policy is `none`.
type nothing struct{}

func (nothing) GetCPUs(string, string) []int64 { return nil }
func (nothing) GetAllocatableCPUs() []int64    { return nil }

func (nothing) GetMemory(string, string) []*podresourcesv1.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory() []*podresourcesv1.ContainerMemory    { return nil }

func (nothing) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesv1.DynamicResource {
	return nil
}
