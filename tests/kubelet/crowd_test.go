package kubelet_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

// fiveParts divides each of sixteen GPUs in five: eighty devices.
const fiveParts = `
[[profile]]
name = 'gpu-40'
fraction = 0.4
[[profile]]
name = 'gpu-20'
fraction = 0.2
[[profile]]
name = 'gpu-10'
fraction = 0.1
[[layout]]
profiles = ['gpu-40', 'gpu-20', 'gpu-20', 'gpu-10', 'gpu-10']
`

// crowd is a hundred pods for them: four want too much of the first size, and eight of each other.
func crowd() []kubelet.Pod {
	var pods []kubelet.Pod
	for at := range 100 {
		resource := []string{"gpu-40", "gpu-20", "gpu-20", "gpu-10", "gpu-10"}[at%5]
		pods = append(pods, kubelet.One(fmt.Sprint("pod-", at), "tranche.dev/"+resource, 1))
	}
	return pods
}

// sixteenGpus is a lab whose GPUs are divided in five.
func sixteenGpus(t *testing.T) (*node.Node, *kubelet.Kubelet) {
	t.Helper()
	t.Parallel()
	n := node.New(t, "v100x16")
	n.StartDaemon()
	n.StartPlugin(fiveParts)
	k := kubelet.Start(n)
	awaitCapacities(n, k, map[string]kubelet.Count{
		"tranche.dev/gpu-40": {Capacity: 16, Allocatable: 16},
		"tranche.dev/gpu-20": {Capacity: 32, Allocatable: 32},
		"tranche.dev/gpu-10": {Capacity: 32, Allocatable: 32},
	})
	return n, k
}

func TestAHundredPodsAtOnceShareSixteenGpus(t *testing.T) {
	n, k := sixteenGpus(t)
	given := rush(t, k)
	if len(given) != 80 {
		t.Errorf("%d pods have something", len(given))
	}
	judge(t, n, k, given)
	for pod := range given {
		k.End(pod)
	}
	n.Within(release, "all slices end", func() error { return slicesAre(n, 0) })
	for _, gpu := range n.Smi().Gpus {
		if gpu.Committed != 0 {
			t.Errorf("of GPU %d, %d bytes are still promised to somebody", gpu.Index, gpu.Committed)
		}
	}
}

// rush has all pods come and start at once. Who gets what is the answer; nobody else may hear anything but that
// there is no room.
func rush(t *testing.T, k *kubelet.Kubelet) map[string]string {
	var mutex sync.Mutex
	var comers sync.WaitGroup
	given := map[string]string{}
	for _, pod := range crowd() {
		comers.Go(func() {
			err := k.Admit(pod)
			if err != nil {
				if !strings.Contains(err.Error(), "requested number of devices unavailable") {
					t.Errorf("%s: %v", pod.Name, err)
				}
				return
			}
			gets, err := k.StartContainer(pod.Name, "main")
			if err != nil || len(gets.CDI) != 1 {
				t.Errorf("%s gets %v, %v", pod.Name, gets, err)
				return
			}
			mutex.Lock()
			defer mutex.Unlock()
			given[pod.Name] = strings.TrimPrefix(gets.CDI[0], cdiKind)
		})
	}
	comers.Wait()
	return given
}

// judge compares what pods were given with what the daemon has: nothing twice, nothing across GPUs, nothing that
// nobody has, no GPU more than full.
func judge(t *testing.T, n *node.Node, k *kubelet.Kubelet, given map[string]string) {
	t.Helper()
	owner := map[string]string{}
	for pod, slice := range given {
		if other, taken := owner[slice]; taken {
			t.Errorf("%s and %s both have %s", pod, other, slice)
		}
		owner[slice] = pod
	}
	picture := n.Smi()
	promised := map[int]uint64{}
	for _, slice := range picture.Slices {
		pod, owned := owner[slice.Name]
		if !owned || len(slice.Devices) != 1 {
			t.Errorf("%+v is %q's", slice, pod)
			continue
		}
		if device := k.Devices(pod, "main"); !strings.HasPrefix(device[0], slice.Devices[0].UUID) {
			t.Errorf("%s is not where %+v is", device, slice)
		}
		promised[slice.Devices[0].Gpu] += slice.Devices[0].Cap
	}
	if len(picture.Slices) != len(given) {
		t.Errorf("%d pods have %d slices", len(given), len(picture.Slices))
	}
	for _, gpu := range picture.Gpus {
		if promised[gpu.Index] > gpu.Capacity {
			t.Errorf("of GPU %d, %d bytes are promised", gpu.Index, promised[gpu.Index])
		}
	}
}
