package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

// consumer is a pod of one container, and what becomes of it.
type consumer struct {
	name     string
	resource string
	count    int64
	// What it was promised of each GPU, in MiB.
	promised uint64
	// What it has.
	slice node.Slice
	sees  []view
}

// view is what a program in a container sees of one of its GPUs, and gets of it.
type view struct {
	Devices int
	Device  struct {
		Total uint64 `json:"total_bytes"`
	}
	Allocated uint64 `json:"allocated_bytes"`
	Beyond    []*refusal
	PerSecond float64 `json:"per_second"`
	nvmlTotal uint64
}

type refusal struct{ Error string }

func (c *consumer) pod() kubelet.Pod {
	return kubelet.One(c.name, "tranche.dev/"+c.resource, c.count)
}

// gpus are the GPUs that its slice is of.
func (c *consumer) gpus() string {
	var gpus []string
	for _, part := range c.slice.Devices {
		gpus = append(gpus, strconv.Itoa(part.Gpu))
	}
	return strings.Join(gpus, ", ")
}

// distinct is how many GPUs its slice is of, all of which a program sees; 0 if it sees more or fewer.
func (c *consumer) distinct() int {
	gpus := map[int]bool{}
	for _, part := range c.slice.Devices {
		gpus[part.Gpu] = true
	}
	if len(c.sees) != len(gpus) {
		return 0
	}
	return len(gpus)
}

// work has a program on each GPU that can be seen in its slice, all at the same time.
func (c *consumer) work(n *node.Node) error {
	var looks view
	if err := c.inside(n, &looks); err != nil {
		return err
	}
	failures := make([]error, looks.Devices)
	c.sees = make([]view, looks.Devices)
	var programs sync.WaitGroup
	for gpu := range looks.Devices {
		programs.Go(func() {
			failures[gpu] = errors.Join(
				c.inside(n, &c.sees[gpu], "--device", strconv.Itoa(gpu), "--fill", "--beyond", "1Gi", "--seconds", "4"),
				c.askNvml(n, gpu))
		})
	}
	programs.Wait()
	return errors.Join(failures...)
}

// inside runs a program in its slice, in the place of the container's, and reads what it reports.
func (c *consumer) inside(n *node.Node, report any, arguments ...string) error {
	run := append([]string{"run", "--slice", c.slice.Name, "--", n.Staged("workload")}, arguments...)
	said, err := n.Run("tranche", run...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(said), report); err != nil {
		return fmt.Errorf("a program in %s says %q: %w", c.slice.Name, said, err)
	}
	return nil
}

func (c *consumer) askNvml(n *node.Node, gpu int) error {
	var nvml struct {
		Gpus []struct {
			Total uint64 `json:"total_bytes"`
		}
	}
	if err := c.inside(n, &nvml, "--nvml"); err != nil {
		return err
	}
	if gpu < len(nvml.Gpus) {
		c.sees[gpu].nvmlTotal = nvml.Gpus[gpu].Total
	}
	return nil
}

const outOfMemory = "out of memory"

// answer is what it was told when it asked for more than it has.
func (v *view) answer() string {
	switch {
	case len(v.Beyond) != 1 || v.Beyond[0] == nil:
		return "granted"
	case v.Beyond[0].Error == "CUDA_ERROR_OUT_OF_MEMORY":
		return outOfMemory
	default:
		return v.Beyond[0].Error
	}
}

// sees is what CUDA and NVML agree that there is, in MiB; 0 if they do not.
func (v *view) sees() uint64 {
	if v.Device.Total != v.nvmlTotal {
		return 0
	}
	return v.Device.Total / node.MiB
}
