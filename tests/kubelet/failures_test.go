package kubelet_test

import (
	"slices"
	"testing"
	"time"

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

func TestAFaultTakesTheDevicesOfItsGpuUntilThatHasBeenQuiet(t *testing.T) {
	n := bareMachine(t)
	n.Configuration = "fault_quiet_s = 4\n"
	n.StartDaemon()
	k := attend(n)
	given := sliceOf(t, n, k.Run(kubelet.One("pod", big, 1))["main"])
	tenant := occupy(n, given)
	n.SetGpu(given.Devices[0].Gpu, "--xid", "48")
	awaitCapacity(n, k, kubelet.Count{Capacity: 8, Allocatable: 7})
	if ailing := k.Ailing("pod", "main"); !slices.Equal(ailing, k.Devices("pod", "main")) {
		t.Errorf("the pod's status shows %v as unhealthy", ailing)
	}
	awaitCapacity(n, k, all)
	if ailing := k.Ailing("pod", "main"); len(ailing) != 0 || !tenant.Runs() {
		t.Errorf("the pod's status still shows %v as unhealthy, or its program is gone", ailing)
	}
}

func TestAFaultThatAProgramBroughtAboutTakesNothing(t *testing.T) {
	n, k := lab(t)
	// It read where it must not.
	n.SetGpu(3, "--xid", "31")
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if is := k.Capacity(); is[big] != all {
			t.Fatalf("the node's capacity is %v", is)
		}
	}
}
