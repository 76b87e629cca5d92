package kubelet_test

import (
	"fmt"
	"testing"
	"time"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

// release is how long a slice may outlive its pod: it is looked for every ten seconds or so, and must be missing
// for thirty.
const release = 120 * time.Second

func TestASliceEndsWhenItsPodIsGoneAndNobodyIsInIt(t *testing.T) {
	n, k := lab(t)
	k.Run(kubelet.One("stays", big, 1))
	k.Run(kubelet.One("goes", big, 1))
	busy := sliceOf(t, n, k.Run(kubelet.One("goes-busily", small, 1))["main"])
	occupy(n, busy)
	k.End("goes")
	k.End("goes-busily")
	ended := time.Now()
	n.Within(release, "the slice of the pod that is gone ends", func() error { return slicesAre(n, 2) })
	if after := time.Since(ended); after < 30*time.Second {
		t.Errorf("it ended after %v, before anybody could be sure", after)
	}
	n.Slice(busy.Name)
}

func TestASliceWhosePodEndedWhileNobodyLookedEnds(t *testing.T) {
	n, k := lab(t)
	k.Run(kubelet.One("pod", big, 1))
	n.KillPlugin()
	k.End("pod")
	k.Kill()
	k.Begin()
	k.HearOfPods()
	n.StartPlugin(bigAndSmall)
	n.Within(release, "its slice ends", func() error { return slicesAre(n, 0) })
	awaitCapacity(n, k, all)
}

func TestTheNextPodOfADeviceFindsNobodyInIt(t *testing.T) {
	n, k := lab(t)
	// All eight, so that the next pod can only get the one that is free.
	for at := range 8 {
		k.Run(kubelet.One(fmt.Sprint("pod-", at), big, 1))
	}
	slice := sliceOf(t, n, equipment(t, k, "pod-3"))
	tenant := occupy(n, slice)
	k.End("pod-3")
	next := sliceOf(t, n, k.Run(kubelet.One("next", big, 1))["main"])
	if next.Name != slice.Name || len(next.Processes) != 0 {
		t.Errorf("after %+v comes %+v", slice, next)
	}
	n.Eventually("who was left of the pod before is gone", func() error {
		if tenant.Runs() {
			return fmt.Errorf("process %d runs", tenant.Pid())
		}
		return nil
	})
}

func equipment(t *testing.T, k *kubelet.Kubelet, pod string) kubelet.Equipment {
	t.Helper()
	gets, err := k.StartContainer(pod, "main")
	if err != nil {
		t.Fatal(err)
	}
	return gets
}

func slicesAre(n *node.Node, count int) error {
	if slices := n.Smi().Slices; len(slices) != count {
		return fmt.Errorf("there are %d slices instead of %d", len(slices), count)
	}
	return nil
}
