package kubelet_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

func TestTheDevicesOfAContainerAreOneSliceOfAsManyGpus(t *testing.T) {
	n, k := lab(t)
	slice := sliceOf(t, n, k.Run(kubelet.One("three", small, 3))["main"])
	if count := len(gpusOf(slice)); count != 3 {
		t.Errorf("three devices are on %d GPUs: %+v", count, slice)
	}
	for _, part := range slice.Devices {
		if part.Cap != smallCap {
			t.Errorf("0.4 of a GPU are %d bytes of GPU %d", part.Cap, part.Gpu)
		}
	}
	if sees := looksFrom(t, n, slice); sees.Devices != 3 || sees.Device.Total != smallCap {
		t.Errorf("a program in it sees %+v", sees)
	}
	// Five GPUs have their part left, and one of them would have to give two.
	refused(t, k, kubelet.One("six", small, 6), "requested number of devices unavailable")
	k.Run(kubelet.One("five", small, 5))
}

func TestAnInitContainerMayHaveMoreGpusThanTheContainerAfterIt(t *testing.T) {
	n, k := lab(t)
	pod := kubelet.Pod{
		Name:       "pod",
		Init:       []kubelet.Container{wanting("first", 2)},
		Containers: []kubelet.Container{wanting("main", 1)},
	}
	if err := k.Admit(pod); err != nil {
		t.Fatal(err)
	}
	// As with a runtime, the second starts when the first has ended.
	for _, next := range []struct {
		container string
		count     int
	}{{"first", 2}, {"main", 1}} {
		gets, err := k.StartContainer("pod", next.container)
		if err != nil {
			t.Fatal(err)
		}
		slice := sliceOf(t, n, gets)
		if sees := looksFrom(t, n, slice); sees.Devices != next.count {
			t.Errorf("%s has %d devices and sees %d", next.container, next.count, sees.Devices)
		}
	}
}

func TestAContainerWithDevicesOfTwoProfilesDoesNotStart(t *testing.T) {
	n, k := lab(t)
	mixed := kubelet.Container{Name: "main", Wants: map[string]int64{big: 1, small: 1}}
	if err := k.Admit(kubelet.Pod{Name: "pod", Containers: []kubelet.Container{mixed}}); err != nil {
		t.Fatal(err)
	}
	if gets, err := k.StartContainer("pod", "main"); err == nil || !strings.Contains(err.Error(), "profile") {
		t.Errorf("it gets %v and is told %v", gets, err)
	}
	k.End("pod")
	n.Within(release, "what it had comes back", func() error { return slicesAre(n, 0) })
}

// gpusOf are the GPUs that a slice is of.
func gpusOf(slice node.Slice) []int {
	gpus := map[int]bool{}
	for _, part := range slice.Devices {
		gpus[part.Gpu] = true
	}
	return slices.Sorted(maps.Keys(gpus))
}

// sight is what a program sees.
type sight struct {
	Devices int
	Device  struct {
		Total uint64 `json:"total_bytes"`
	}
}

// looksFrom has a program look around in a slice.
func looksFrom(t *testing.T, n *node.Node, slice node.Slice) sight {
	t.Helper()
	var sees sight
	said := n.Must("tranche", "run", "--slice", slice.Name, "--", n.Staged("workload"))
	if err := json.Unmarshal([]byte(said), &sees); err != nil {
		t.Fatalf("the program says %q: %v", said, err)
	}
	return sees
}
