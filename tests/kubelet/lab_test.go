// Package kubelet_test has a real kubelet's device manager hand out slices of simulated GPUs, through the real
// plugin and the real daemon.
package kubelet_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

func TestMain(m *testing.M) {
	kubelet.BeIfAsked()
	os.Exit(m.Run())
}

const (
	big   = "tranche.dev/gpu-60"
	small = "tranche.dev/gpu-40"
)

// bigAndSmall divides each GPU in two.
const bigAndSmall = `
[[profile]]
name = 'gpu-60'
fraction = 0.6
[[profile]]
name = 'gpu-40'
fraction = 0.4
[[layout]]
profiles = ['gpu-60', 'gpu-40']
`

// A V100 can hand out 32510 MiB.
const (
	bigCap   = 19506 * node.MiB
	smallCap = 13004 * node.MiB
)

// bareMachine is a machine of eight GPUs on which nothing runs.
func bareMachine(t *testing.T) *node.Node {
	t.Helper()
	t.Parallel()
	return node.New(t, "v100x8")
}

// machine is a machine of eight GPUs with its daemon.
func machine(t *testing.T) *node.Node {
	t.Helper()
	n := bareMachine(t)
	n.StartDaemon()
	return n
}

// lab is the same with a plugin and a kubelet that know each other.
func lab(t *testing.T) (*node.Node, *kubelet.Kubelet) {
	t.Helper()
	n := machine(t)
	return n, attend(n)
}

// attend gives a machine with a daemon plugin and kubelet.
func attend(n *node.Node) *kubelet.Kubelet {
	n.Judge.Helper()
	n.StartPlugin(bigAndSmall)
	k := kubelet.Start(n)
	awaitCapacity(n, k, all)
	return k
}

// awaitCapacity waits until there are as many devices of each of the two sizes.
func awaitCapacity(n *node.Node, k *kubelet.Kubelet, want kubelet.Count) {
	n.Judge.Helper()
	awaitCapacities(n, k, map[string]kubelet.Count{big: want, small: want})
}

func awaitCapacities(n *node.Node, k *kubelet.Kubelet, want map[string]kubelet.Count) {
	n.Judge.Helper()
	n.Eventually("the node's capacity", func() error {
		if is := k.Capacity(); !maps.Equal(is, want) {
			return fmt.Errorf("it is %v instead of %v", is, want)
		}
		return nil
	})
}

// sliceOf is the slice that a container's only CDI device names.
func sliceOf(t *testing.T, n *node.Node, gets kubelet.Equipment) node.Slice {
	t.Helper()
	if len(gets.CDI) != 1 || !strings.HasPrefix(gets.CDI[0], cdiKind) {
		t.Fatalf("it gets %v instead of one slice", gets.CDI)
	}
	return n.Slice(strings.TrimPrefix(gets.CDI[0], cdiKind))
}

const cdiKind = "tranche.dev/slice="

// refused asserts that a pod gets nothing, and that whoever looks at it reads why.
func refused(t *testing.T, k *kubelet.Kubelet, pod kubelet.Pod, why string) {
	t.Helper()
	if err := k.Admit(pod); err == nil || !strings.Contains(err.Error(), why) {
		t.Fatalf("%s is told %v instead of %q", pod.Name, err, why)
	}
}

// occupy has a program work in a slice, in the place of the container's.
func occupy(n *node.Node, slice node.Slice) *node.Process {
	n.Judge.Helper()
	tenant := n.Start("tenant.log", "tranche", "run", "--slice", slice.Name, "--", n.Staged("workload"), "--memory", "100Mi", "--hold", "600")
	n.Eventually("somebody is in "+slice.Name, func() error {
		if len(n.Slice(slice.Name).Processes) == 0 {
			return fmt.Errorf("nobody is: %s", tenant.Log())
		}
		return nil
	})
	return tenant
}
