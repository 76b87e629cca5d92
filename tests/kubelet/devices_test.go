package kubelet_test

import (
	"fmt"
	"strings"
	"testing"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

func TestAContainerGetsASliceOfTheGpuThatItsDeviceNames(t *testing.T) {
	n, k := lab(t)
	gets := k.Run(kubelet.One("pod", big, 1))["main"]
	slice := sliceOf(t, n, gets)
	device := k.Devices("pod", "main")[0]
	if len(slice.Devices) != 1 || !strings.HasPrefix(device, slice.Devices[0].UUID+"::gpu-60::") {
		t.Errorf("%s is not where %+v is", device, slice)
	}
	if slice.Devices[0].Cap != bigCap {
		t.Errorf("0.6 of a GPU are %d bytes", slice.Devices[0].Cap)
	}
	if gets.Envs["NVIDIA_VISIBLE_DEVICES"] != "void" {
		t.Errorf("NVIDIA's runtime is not told to do nothing: %v", gets.Envs)
	}
	if gets.Mounts != 0 || gets.Nodes != 0 {
		t.Errorf("something comes beside the CDI device: %+v", gets)
	}
}

func TestWhatSlicesOfOthersNeedIsNotAllocatable(t *testing.T) {
	n, k := lab(t)
	n.Must("tranche", "slice", "create", "other", "-g", "0.5", "--gpu", "3")
	awaitCapacities(n, k, map[string]kubelet.Count{big: {Capacity: 8, Allocatable: 7}, small: {Capacity: 8, Allocatable: 8}})
	n.Must("tranche", "slice", "create", "another", "-g", "1", "--gpu", "4")
	awaitCapacities(n, k, map[string]kubelet.Count{big: {Capacity: 8, Allocatable: 6}, small: {Capacity: 8, Allocatable: 7}})
	n.Must("tranche", "slice", "delete", "other")
	n.Must("tranche", "slice", "delete", "another")
	awaitCapacity(n, k, all)
}

func TestWhatIsInUseStaysAllocatableAndIsGivenToNobodyElse(t *testing.T) {
	n, k := lab(t)
	seen := map[string]bool{}
	for at := range 8 {
		pod := kubelet.One(fmt.Sprintf("pod-%d", at), big, 1)
		seen[k.Run(pod)["main"].CDI[0]] = true
	}
	if len(seen) != 8 || len(n.Smi().Slices) != 8 {
		t.Errorf("eight pods have %v", seen)
	}
	awaitCapacity(n, k, all)
	refused(t, k, kubelet.One("ninth", big, 1), "requested number of devices unavailable")
	k.Run(kubelet.One("other-size", small, 1))
}

func TestDynamicProfilesAreNotAllocatableWhereTheyNoLongerFit(t *testing.T) {
	n := machine(t)
	const whole = "tranche.dev/gpu"
	profiles, _, _ := strings.Cut(bigAndSmall, "[[layout]]")
	n.StartPlugin("dynamic = true\n" + profiles + "[[profile]]\nname = 'gpu'\nfraction = 1\n")
	k := kubelet.Start(n)
	await := func(bigs, smalls, wholes int64) {
		t.Helper()
		awaitCapacities(n, k, map[string]kubelet.Count{
			big: {Capacity: 8, Allocatable: bigs}, small: {Capacity: 16, Allocatable: smalls},
			whole: {Capacity: 8, Allocatable: wholes},
		})
	}
	await(8, 16, 8)
	first := sliceOf(t, n, k.Run(kubelet.One("first", big, 1))["main"])
	await(8, 16, 7)
	second := sliceOf(t, n, k.Run(kubelet.One("second", small, 1))["main"])
	if first.Devices[0].Gpu != second.Devices[0].Gpu {
		t.Errorf("0.6 and 0.4 are on two GPUs: %v and %v", first, second)
	}
	// The other small device of that GPU has no room any more.
	await(8, 15, 7)
	for at := range 7 {
		k.Run(kubelet.One(fmt.Sprint("whole-", at), whole, 1))
	}
	await(1, 1, 7)
	refused(t, k, kubelet.One("late", small, 1), "requested number of devices unavailable")
}

func TestAnInitContainerHasTheSliceOfTheContainerAfterIt(t *testing.T) {
	n, k := lab(t)
	gets := k.Run(kubelet.Pod{
		Name:       "pod",
		Init:       []kubelet.Container{wanting("first", 1), wanting("second", 1)},
		Containers: []kubelet.Container{wanting("main", 1)},
	})
	name := sliceOf(t, n, gets["main"]).Name
	if sliceOf(t, n, gets["first"]).Name != name || sliceOf(t, n, gets["second"]).Name != name {
		t.Errorf("one after the other, they have different slices: %v", gets)
	}
	if count := len(n.Smi().Slices); count != 1 {
		t.Errorf("there are %d slices", count)
	}
}

func TestASidecarKeepsASliceOfItsOwn(t *testing.T) {
	n, k := lab(t)
	sidecar := wanting("sidecar", 1)
	sidecar.Sidecar = true
	gets := k.Run(kubelet.Pod{
		Name:       "pod",
		Init:       []kubelet.Container{sidecar, wanting("first", 1)},
		Containers: []kubelet.Container{wanting("main", 1)},
	})
	if sliceOf(t, n, gets["sidecar"]).Name == sliceOf(t, n, gets["main"]).Name {
		t.Errorf("side by side, they have one slice: %v", gets)
	}
	if count := len(n.Smi().Slices); count != 2 {
		t.Errorf("there are %d slices", count)
	}
}

func wanting(name string, count int64) kubelet.Container {
	return kubelet.Container{Name: name, Wants: map[string]int64{small: count}}
}

func TestTheDaemonKnowsWhichContainerASliceIsFor(t *testing.T) {
	n, k := lab(t)
	slice := sliceOf(t, n, k.Run(kubelet.One("pod", big, 1))["main"])
	want := node.Pod{Namespace: kubelet.Namespace, Name: "pod", Container: "main"}
	if slice.Pod == nil || *slice.Pod != want {
		t.Errorf("it is for %v", slice.Pod)
	}
}
