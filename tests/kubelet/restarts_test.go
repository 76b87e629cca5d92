package kubelet_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

var (
	all  = kubelet.Count{Capacity: 8, Allocatable: 8}
	none = kubelet.Count{Capacity: 8, Allocatable: 0}
)

func TestAKubeletThatIsKilledFindsWhatItGaveAway(t *testing.T) {
	n, k := lab(t)
	before := k.Run(kubelet.One("pod", big, 1))["main"]
	device := k.Devices("pod", "main")
	k.Kill()
	k.Begin()
	k.HearOfPods()
	awaitCapacity(n, k, all)
	if now := k.Devices("pod", "main"); !slices.Equal(now, device) {
		t.Errorf("%v has become %v", device, now)
	}
	// Its container crashes, and starts again.
	again, err := k.StartContainer("pod", "main")
	if err != nil || !slices.Equal(again.CDI, before.CDI) {
		t.Errorf("it gets %v and then %v, %v", before, again, err)
	}
	k.Run(kubelet.One("others", big, 7))
	refused(t, k, kubelet.One("ninth", big, 1), "requested number of devices unavailable")
	if count := parts(n); count != 8 {
		t.Errorf("eight devices are %d parts of GPUs", count)
	}
}

// parts is how many parts of GPUs all slices have.
func parts(n *node.Node) int {
	count := 0
	for _, slice := range n.Smi().Slices {
		count += len(slice.Devices)
	}
	return count
}

func TestRunningPodsOutliveAKubeletAndThePluginBoth(t *testing.T) {
	n, k := lab(t)
	given := k.Run(kubelet.One("pod", big, 1))["main"]
	k.Kill()
	n.KillPlugin()
	k.Begin()
	// Nobody has registered, and the pod that runs is admitted all the same.
	k.HearOfPods()
	awaitCapacity(n, k, kubelet.Count{})
	refused(t, k, kubelet.One("new", big, 1), "no healthy devices present")
	n.StartPlugin(bigAndSmall)
	awaitCapacity(n, k, all)
	if slice := sliceOf(t, n, given); slice.Devices[0].Cap != bigCap {
		t.Errorf("its slice has become %+v", slice)
	}
	k.Run(kubelet.One("new", big, 1))
}

func TestAPluginThatIsKilledFindsItsSlices(t *testing.T) {
	n, k := lab(t)
	given := k.Run(kubelet.One("pod", big, 1))["main"]
	slice := sliceOf(t, n, given)
	tenant := occupy(n, slice)
	n.KillPlugin()
	awaitCapacity(n, k, none)
	refused(t, k, kubelet.One("meanwhile", small, 1), "no healthy devices present")
	n.StartPlugin(bigAndSmall)
	awaitCapacity(n, k, all)
	if now := n.Slice(slice.Name); len(now.Processes) != 1 || !tenant.Runs() {
		t.Errorf("who was in it is gone: %+v", now)
	}
	again, err := k.StartContainer("pod", "main")
	if err != nil || !slices.Equal(again.CDI, given.CDI) {
		t.Errorf("it gets %v and then %v, %v", given, again, err)
	}
	k.Run(kubelet.One("others", big, 7))
	if count := parts(n); count != 8 {
		t.Errorf("eight devices are %d parts of GPUs", count)
	}
}

func TestAPluginThatIsStoppedLeavesPodsTheirSlices(t *testing.T) {
	n, k := lab(t)
	given := k.Run(kubelet.One("pod", big, 1))["main"]
	if code := n.StopPlugin(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	awaitCapacity(n, k, none)
	sockets, _ := filepath.Glob(filepath.Join(n.KubeletDir(), "*.sock"))
	if len(sockets) != 1 {
		t.Errorf("besides the kubelet's socket it leaves %v", sockets)
	}
	sliceOf(t, n, given)
	n.StartPlugin(bigAndSmall)
	awaitCapacity(n, k, all)
}

func TestADaemonThatIsKilledFindsItsSlices(t *testing.T) {
	n, k := lab(t)
	given := k.Run(kubelet.One("pod", small, 1))["main"]
	slice := sliceOf(t, n, given)
	tenant := occupy(n, slice)
	n.KillDaemon()
	awaitCapacity(n, k, none)
	refused(t, k, kubelet.One("meanwhile", small, 1), "no healthy devices present")
	n.StartDaemon()
	awaitCapacity(n, k, all)
	if now := n.Slice(slice.Name); now.Devices[0].Cap != smallCap || len(now.Processes) != 1 || !tenant.Runs() {
		t.Errorf("%+v has become %+v", slice, now)
	}
	k.Run(kubelet.One("after", small, 1))
}

func TestASliceThatTheDaemonLostIsMadeAgainBeforeItsContainerStarts(t *testing.T) {
	n, k := lab(t)
	given := k.Run(kubelet.One("pod", big, 1))["main"]
	slice := sliceOf(t, n, given)
	n.KillDaemon()
	if err := os.RemoveAll(filepath.Join(n.Dir, "state")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(n.Dir, "run")); err != nil {
		t.Fatal(err)
	}
	n.StartDaemon()
	awaitCapacity(n, k, all)
	if left := n.Smi().Slices; len(left) != 0 {
		t.Fatalf("the daemon has lost nothing: %v", left)
	}
	if _, err := k.StartContainer("pod", "main"); err != nil {
		t.Fatal(err)
	}
	if now := n.Slice(slice.Name); now.Devices[0] != slice.Devices[0] {
		t.Errorf("%+v has become %+v", slice, now)
	}
}

func TestAPluginWaitsForItsKubelet(t *testing.T) {
	n := machine(t)
	n.StartPlugin(bigAndSmall)
	n.Eventually("the plugin misses the kubelet", func() error { return n.PluginSays("there is no directory") })
	time.Sleep(2 * time.Second)
	k := kubelet.Start(n)
	awaitCapacity(n, k, all)
	k.Run(kubelet.One("pod", big, 1))
}

func TestAPluginWaitsForItsDaemon(t *testing.T) {
	n := bareMachine(t)
	k := kubelet.Start(n)
	n.StartPlugin(bigAndSmall)
	n.Eventually("the plugin misses the daemon", func() error { return n.PluginSays("cannot connect to tranched") })
	n.StartDaemon()
	awaitCapacity(n, k, all)
	k.Run(kubelet.One("pod", big, 1))
}
