package kubelet

import (
	_ "unsafe" // for go:linkname

	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// newManager is what devicemanager.NewManagerImpl calls with the one socket path that it knows, which lies in
// /var/lib/kubelet. With a path of its own each test has a directory of its own, needs no privileges, and runs
// beside the others.
//
//go:linkname newManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManager(klog.Logger, string, []cadvisor.Node, topologymanager.Store) (*devicemanager.ManagerImpl, error)
