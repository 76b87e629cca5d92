package kubelet_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tranche.dev/tests/kubelet/kubelet"
	"tranche.dev/tests/kubelet/node"
)

// watched is how a plugin is configured that tells about itself.
func watched(n *node.Node) string {
	return fmt.Sprintf("service_account_dir = '%s/account'\nmetrics = '%s/metrics.sock'\n", n.Dir, n.Dir)
}

// scrape is what the plugin says at a path of its metrics.
func scrape(n *node.Node, path string) (string, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.Dir, "metrics.sock"))
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	answer, err := client.Get("http://plugin" + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// figure waits until the plugin publishes a line.
func figure(n *node.Node, line string) {
	n.Judge.Helper()
	n.Eventually(line, func() error {
		text, err := scrape(n, "/metrics")
		if err == nil && !strings.Contains("\n"+text, "\n"+line+"\n") {
			err = fmt.Errorf("it is\n%s", text)
		}
		return err
	})
}

func devices(resource, state string, count int) string {
	return fmt.Sprintf("tranche_deviceplugin_devices{resource=%q,state=%q} %d", resource, state, count)
}

func TestAGpuThatBreaksAndRecoversIsToldToKubernetesAndInMetrics(t *testing.T) {
	n := bareMachine(t)
	n.Configuration = "fault_quiet_s = 3\n"
	n.StartDaemon()
	a := serveEvents(t, n)
	n.StartPlugin(watched(n) + bigAndSmall)
	n.Eventually("it lives", func() error { _, err := scrape(n, "/healthz"); return err })
	if _, err := scrape(n, "/readyz"); err == nil {
		t.Error("without a kubelet it is not ready")
	}
	k := kubelet.Start(n)
	awaitCapacity(n, k, all)
	n.Eventually("it is ready", func() error { _, err := scrape(n, "/readyz"); return err })
	given := sliceOf(t, n, k.Run(kubelet.One("pod", big, 1))["main"])
	figure(n, devices(big, "in_use", 1))
	figure(n, devices(small, "free", 8))
	figure(n, fmt.Sprintf("tranche_deviceplugin_allocations_total{resource=%q,outcome=\"allocated\"} 1", big))
	figure(n, fmt.Sprintf("tranche_deviceplugin_registered{resource=%q} 1", big))
	figure(n, fmt.Sprintf("tranche_deviceplugin_kubelet_streams{resource=%q} 1", small))
	figure(n, "tranche_deviceplugin_daemon_up 1")

	n.SetGpu(given.Devices[0].Gpu, "--xid", "48")
	figure(n, devices(big, "broken", 1))
	a.saw(n, corev1.EventTypeWarning, "GpuBroken", "Xid 48", given.Devices[0].UUID)
	figure(n, devices(big, "broken", 0))
	a.saw(n, corev1.EventTypeNormal, "GpuRecovered", "Xid 48", given.Devices[0].UUID)
	figure(n, `tranche_deviceplugin_kubernetes_events_total{outcome="posted"} 2`)

	n.KillDaemon()
	figure(n, "tranche_deviceplugin_daemon_up 0")
	if _, err := scrape(n, "/readyz"); err == nil || !strings.Contains(err.Error(), "tranched does not answer") {
		t.Errorf("without a daemon it is not ready: %v", err)
	}
	if _, err := scrape(n, "/healthz"); err != nil {
		t.Errorf("and lives all the same: %v", err)
	}
	if posted := a.times(); posted != 2 {
		t.Errorf("a daemon that is away is nothing about GPUs: %d events", posted)
	}
}

func TestALostRaceIsCountedAndTold(t *testing.T) {
	n := machine(t)
	a := serveEvents(t, n)
	profiles := "dynamic = true\n[[profile]]\nname = 'gpu-60'\nfraction = 0.6\n[[profile]]\nname = 'gpu-40'\nfraction = 0.4\n"
	n.StartPlugin(watched(n) + profiles)
	k := kubelet.Start(n)
	n.Eventually("devices are there", func() error {
		if is := k.Capacity(); is[big].Allocatable != 8 {
			return fmt.Errorf("the capacity is %v", is)
		}
		return nil
	})
	plugin := pluginOf(t, n.KubeletDir(), "gpu-60")
	ids := devicesOf(t, plugin)
	// Somebody beside Kubernetes is faster; the kubelet's next call comes before it hears of that.
	for gpu := range 8 {
		n.Must("tranche", "slice", "create", fmt.Sprintf("other-%d", gpu), "--gpu", fmt.Sprint(gpu), "-g", "0.9")
	}
	if name, err := allocate(plugin, ids[0]); err == nil {
		t.Fatalf("there was room for %s after all", name)
	}
	figure(n, "tranche_deviceplugin_lost_races_total 1")
	figure(n, fmt.Sprintf("tranche_deviceplugin_allocations_total{resource=%q,outcome=\"lost_race\"} 1", big))
	a.saw(n, corev1.EventTypeWarning, "GpuRaceLost", "1 allocation")
	figure(n, devices(big, "taken", 8))
}

func TestAnApiServerThatRefusesKeepsNobodyWaiting(t *testing.T) {
	n := machine(t)
	a := serveEvents(t, n)
	a.set(http.StatusForbidden)
	n.StartPlugin(watched(n) + bigAndSmall)
	k := kubelet.Start(n)
	awaitCapacity(n, k, all)
	n.SetGpu(2, "--lost", "on")
	awaitCapacity(n, k, kubelet.Count{Capacity: 8, Allocatable: 7})
	figure(n, `tranche_deviceplugin_kubernetes_events_total{outcome="failed"} 1`)
	n.Eventually("it is said", func() error { return n.PluginSays("answers 403: told to refuse; may the service account") })
	if asked := a.times(); asked != 1 {
		t.Errorf("what is forbidden is asked for %d times", asked)
	}
	a.set(http.StatusServiceUnavailable)
	n.SetGpu(2, "--lost", "off")
	awaitCapacity(n, k, all)
	n.Eventually("it is tried", func() error {
		if asked := a.times(); asked < 2 {
			return fmt.Errorf("it was asked %d times", asked)
		}
		return nil
	})
	a.set(http.StatusCreated)
	a.saw(n, corev1.EventTypeNormal, "GpuRecovered")
}

func TestAnApiServerThatTheClusterDidNotCertifyIsToldNothing(t *testing.T) {
	n := machine(t)
	a := serveEvents(t, n)
	another, _ := cluster(t)
	if err := os.WriteFile(filepath.Join(n.Dir, "account/ca.crt"), another, 0o600); err != nil {
		t.Fatal(err)
	}
	n.SetGpu(2, "--lost", "on")
	n.StartPlugin(watched(n) + bigAndSmall)
	n.Within(2*node.Patience, "it is said", func() error { return n.PluginSays("cannot be asked: ") })
	if asked := a.times(); asked != 0 {
		t.Errorf("it was asked %d times", asked)
	}
}

func TestWithoutAServiceAccountThereAreNoEventsAndItIsSaid(t *testing.T) {
	n := machine(t)
	n.StartPlugin(bigAndSmall)
	n.Eventually("it is said", func() error { return n.PluginSays("no events are sent to Kubernetes: ") })
}
