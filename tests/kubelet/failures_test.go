package kubelet_test

import (
	"slices"
	"testing"

	"tranche.dev/tests/kubelet/kubelet"
)

func TestAGpuThatFallsOffTheBusIsNotAllocatableUntilItIsBack(t *testing.T) {
	n, k := lab(t)
	given := sliceOf(t, n, k.Run(kubelet.One("pod", big, 1))["main"])
	device := k.Devices("pod", "main")
	n.SetGpu(given.Devices[0].Gpu, "--lost", "on")
	awaitCapacity(n, k, kubelet.Count{Capacity: 8, Allocatable: 7})
	if ailing := k.Ailing("pod", "main"); !slices.Equal(ailing, device) {
		t.Errorf("the pod's status shows %v as unhealthy", ailing)
	}
	k.Run(kubelet.One("others", small, 7))
	refused(t, k, kubelet.One("one-more", small, 1), "requested number of devices unavailable")
	n.SetGpu(given.Devices[0].Gpu, "--lost", "off")
	awaitCapacity(n, k, all)
	if ailing := k.Ailing("pod", "main"); len(ailing) != 0 {
		t.Errorf("the pod's status still shows %v as unhealthy", ailing)
	}
	k.Run(kubelet.One("one-more", small, 1))
}
