// Command demo has a kubelet's device manager hand out the fractions 0.6 + 0.4 and 0.5 + 0.3 + 0.2, two GPUs and
// four GPUs of a node of eight, and looks at what each consumer sees.
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

const profiles = `
[[profile]]
name = 'gpu-60'
fraction = 0.6
[[profile]]
name = 'gpu-50'
fraction = 0.5
[[profile]]
name = 'gpu-40'
fraction = 0.4
[[profile]]
name = 'gpu-30'
fraction = 0.3
[[profile]]
name = 'gpu-20'
fraction = 0.2
[[profile]]
name = 'gpu'
fraction = 1
[[layout]]
gpu = 0
profiles = ['gpu-60', 'gpu-40']
[[layout]]
gpu = 1
profiles = ['gpu-50', 'gpu-30', 'gpu-20']
[[layout]]
profiles = ['gpu']
`

func main() {
	kubelet.BeIfAsked()
	s := &stage{begun: time.Now()}
	s.tell()
	s.clear()
	if s.broken {
		os.Exit(1)
	}
}

func (s *stage) tell() {
	s.introduce()
	s.step("A node of eight GPUs: daemon, device plugin, kubelet")
	n := node.New(s, "v100x8")
	n.StartDaemon()
	n.StartPlugin(profiles)
	k := kubelet.Start(n)
	s.awaitDevices(n, k)

	// A V100 can hand out 32510 MiB.
	consumers := []*consumer{
		{name: "train-60", resource: "gpu-60", count: 1, promised: 19506},
		{name: "train-40", resource: "gpu-40", count: 1, promised: 13004},
		{name: "infer-50", resource: "gpu-50", count: 1, promised: 16255},
		{name: "infer-30", resource: "gpu-30", count: 1, promised: 9753},
		{name: "infer-20", resource: "gpu-20", count: 1, promised: 6502},
		{name: "two-gpus", resource: "gpu", count: 2, promised: 32510},
		{name: "four-gpus", resource: "gpu", count: 4, promised: 32510},
	}
	s.admit(n, k, consumers)
	s.step("All work at the same time, each fills what it has and asks for 1 GiB more")
	s.work(n, consumers)
	s.step("A pod for which there is nothing left")
	err := k.Admit(kubelet.One("late", "tranche.dev/gpu", 1))
	s.line("it is told: %v", err)
	s.step("What was promised, and what came of it")
	s.judge(consumers, err)
}

func (s *stage) introduce() {
	s.step("Fractions of GPUs for pods")
	s.line("real:      the kubelet's device manager and pod resources server (Kubernetes 1.36, in a process of")
	s.line("           their own), tranche-deviceplugin, tranched, the preloaded shim, the programs")
	s.line("simulated: the GPUs (kernels take time and compute nothing); pods and containers: nobody schedules")
	s.line("           them, and each program is put into its pod's slice by `tranche run`, by no runtime")
}

// awaitDevices waits until the kubelet knows all devices, and shows them as the node's status would.
func (s *stage) awaitDevices(n *node.Node, k *kubelet.Kubelet) {
	want := map[string]int64{"gpu-60": 1, "gpu-50": 1, "gpu-40": 1, "gpu-30": 1, "gpu-20": 1, "gpu": 6}
	n.Eventually("the kubelet knows the devices", func() error {
		capacity := k.Capacity()
		for name, count := range want {
			if is := capacity["tranche.dev/"+name].Allocatable; is != count {
				return fmt.Errorf("of %s there are %d", name, is)
			}
		}
		return nil
	})
	for _, name := range []string{"gpu-60", "gpu-50", "gpu-40", "gpu-30", "gpu-20", "gpu"} {
		s.line("allocatable: tranche.dev/%-6s %d", name, want[name])
	}
}

// admit sends the pods, and shows where the kubelet put them.
func (s *stage) admit(n *node.Node, k *kubelet.Kubelet, consumers []*consumer) {
	s.step("Seven pods are admitted")
	s.line("%-10s %-22s %-12s %s", "pod", "asks for", "on GPU", "CDI device of its container")
	for _, c := range consumers {
		gets := k.Run(c.pod())["main"]
		if len(gets.CDI) != 1 {
			s.Fatalf("%s gets %v instead of one slice", c.name, gets.CDI)
		}
		c.slice = n.Slice(strings.TrimPrefix(gets.CDI[0], "tranche.dev/slice="))
		s.line("%-10s %-22s %-12s %s", c.name, fmt.Sprintf("tranche.dev/%s: %d", c.resource, c.count), c.gpus(), gets.CDI[0])
	}
}

// work has all consumers at work at once, and shows what each sees.
func (s *stage) work(n *node.Node, consumers []*consumer) {
	failures := make([]error, len(consumers))
	var all sync.WaitGroup
	for at, c := range consumers {
		all.Go(func() { failures[at] = c.work(n) })
	}
	time.Sleep(2 * time.Second)
	said := n.Must("tranche", "smi")
	all.Wait()
	for _, failure := range failures {
		if failure != nil {
			s.Fatalf("%v", failure)
		}
	}
	fmt.Print(said)
	s.line("%-10s %16s  %16s  %16s  %-14s %s", "pod", "sees by CUDA", "sees by NVML", "holds", "1 GiB more", "kernels of 1 ms")
	for _, c := range consumers {
		for at, v := range c.sees {
			s.line("%-10s %12d MiB  %12d MiB  %12d MiB  %-14s %5.0f/s", label(c.name, at),
				v.Device.Total/node.MiB, v.nvmlTotal/node.MiB, v.Allocated/node.MiB, v.answer(), v.PerSecond)
		}
	}
}

func label(text string, at int) string {
	if at == 0 {
		return text
	}
	return ""
}

// judge compares what was promised with what there was to see.
func (s *stage) judge(consumers []*consumer, late error) {
	gpus := map[string]string{}
	for _, c := range consumers {
		gpus[c.name] = c.gpus()
		s.claim(c.name+": GPUs, each a different one", c.distinct(), int(c.count))
		for _, v := range c.sees {
			s.claim(c.name+": MiB that CUDA and NVML show", v.sees(), c.promised)
			s.claim(c.name+": 1 GiB more", v.answer(), outOfMemory)
		}
	}
	s.claim("0.6 and 0.4 are on one GPU", gpus["train-60"] == gpus["train-40"], true)
	s.claim("0.5 and 0.3 are on one GPU", gpus["infer-50"] == gpus["infer-30"], true)
	s.claim("0.2 is there too", gpus["infer-50"] == gpus["infer-20"], true)
	s.claim("and that is another GPU", gpus["infer-50"] != gpus["train-60"], true)
	s.claim("a pod too many is refused", late != nil, true)
}
