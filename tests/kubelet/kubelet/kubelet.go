package kubelet

import (
	"net/rpc"
	"sync"

	"tranche.dev/tests/kubelet/node"
)

// Kubelet is a kubelet's process, and what outlives it: the pods of the cluster and the containers that run.
type Kubelet struct {
	node    *node.Node
	process *node.Process
	client  *rpc.Client

	mutex   sync.Mutex
	pods    map[string]Pod
	running map[Place]bool
}

// New is a kubelet that has not been started.
func New(n *node.Node) *Kubelet {
	return &Kubelet{node: n, pods: map[string]Pod{}, running: map[Place]bool{}}
}

// Start is a kubelet that has been started and has heard of all pods.
func Start(n *node.Node) *Kubelet {
	n.Judge.Helper()
	k := New(n)
	k.Begin()
	k.HearOfPods()
	return k
}

// Begin starts the process. It knows its checkpoint and what runs, and no pod.
func (k *Kubelet) Begin() {
	k.node.Judge.Helper()
	process, ends := k.node.Self(role+"=1", "kubelet.log")
	k.process, k.client = process, rpc.NewClient(ends)
	begin := Beginning{Dir: k.node.KubeletDir(), PodsSocket: k.node.PodsSocket()}
	for place := range k.running {
		begin.Running = append(begin.Running, place)
	}
	k.must(k.client.Call("Kubelet.Start", begin, &Nothing{}))
}

// HearOfPods admits the pods that the cluster has for this node, and then believes that there are no others.
func (k *Kubelet) HearOfPods() {
	k.node.Judge.Helper()
	for _, pod := range k.pods {
		k.must(k.client.Call("Kubelet.Admit", pod, &Nothing{}))
	}
	k.must(k.client.Call("Kubelet.SourcesSeen", Nothing{}, &Nothing{}))
}

// Kill ends the process with SIGKILL. Pods and containers stay.
func (k *Kubelet) Kill() {
	k.process.Kill()
	_ = k.client.Close()
}

// Admit sends the node a pod. An error is what whoever looks at the pod would read.
func (k *Kubelet) Admit(pod Pod) error {
	if err := k.client.Call("Kubelet.Admit", pod, &Nothing{}); err != nil {
		return err
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.pods[pod.Name] = pod
	return nil
}

// Run admits a pod and starts its containers. What each gets is by its name.
func (k *Kubelet) Run(pod Pod) map[string]Equipment {
	k.node.Judge.Helper()
	k.must(k.Admit(pod))
	gets := map[string]Equipment{}
	for _, container := range pod.all() {
		equipment, err := k.StartContainer(pod.Name, container.Name)
		k.must(err)
		gets[container.Name] = equipment
	}
	return gets
}

// StartContainer starts a container of an admitted pod, or starts it again.
func (k *Kubelet) StartContainer(pod, container string) (Equipment, error) {
	var gets Equipment
	place := Place{pod, container}
	err := k.client.Call("Kubelet.StartContainer", place, &gets)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.running[place] = k.running[place] || err == nil
	return gets, err
}

// End ends a pod.
func (k *Kubelet) End(name string) {
	k.node.Judge.Helper()
	k.must(k.client.Call("Kubelet.Ended", name, &Nothing{}))
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, container := range k.pods[name].all() {
		delete(k.running, Place{name, container.Name})
	}
	delete(k.pods, name)
}

// Capacity is what the node's status would show.
func (k *Kubelet) Capacity() map[string]Count {
	k.node.Judge.Helper()
	counts := map[string]Count{}
	k.must(k.client.Call("Kubelet.Capacity", Nothing{}, &counts))
	return counts
}

// Devices are those that a container has.
func (k *Kubelet) Devices(pod, container string) []string {
	k.node.Judge.Helper()
	return k.ids("Kubelet.Devices", pod, container)
}

// Ailing are those of them that its pod's status shows as unhealthy.
func (k *Kubelet) Ailing(pod, container string) []string {
	k.node.Judge.Helper()
	return k.ids("Kubelet.Ailing", pod, container)
}

func (k *Kubelet) ids(method, pod, container string) []string {
	k.node.Judge.Helper()
	var ids []string
	k.must(k.client.Call(method, Place{pod, container}, &ids))
	return ids
}

func (k *Kubelet) must(err error) {
	k.node.Judge.Helper()
	if err != nil {
		k.node.Judge.Fatalf("the kubelet: %v", err)
	}
}
