package kubelet_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A kubelet allocates one container after the other, so that a hundred pods never are a hundred calls. Here they
// are, by the kubelet's own client.
func TestAHundredCallsAtOnceGetEachDeviceItsOneSlice(t *testing.T) {
	n, _ := sixteenGpus(t)
	devices, calls := 0, 0
	answers := map[string][]string{}
	var mutex sync.Mutex
	var callers sync.WaitGroup
	for _, profile := range []string{"gpu-40", "gpu-20", "gpu-10"} {
		plugin := pluginOf(t, n.KubeletDir(), profile)
		for _, id := range devicesOf(t, plugin) {
			devices++
			// Each fourth is asked for twice, as for an init container and the one after it.
			for range 1 + (devices%4)/3 {
				calls++
				callers.Go(func() {
					name, err := allocate(plugin, id)
					if err != nil {
						t.Errorf("%s: %v", id, err)
					}
					mutex.Lock()
					defer mutex.Unlock()
					answers[name] = append(answers[name], id)
				})
			}
		}
	}
	callers.Wait()
	if calls != 100 || len(answers) != 80 {
		t.Errorf("%d calls were answered with %d names", calls, len(answers))
	}
	for name, ids := range answers {
		if ids[0] != ids[len(ids)-1] {
			t.Errorf("%s is for all of %v", name, ids)
		}
	}
	if err := slicesAre(n, 80); err != nil {
		t.Error(err)
	}
}

func pluginOf(t *testing.T, dir, profile string) api.DevicePluginClient {
	t.Helper()
	socket := filepath.Join(dir, "tranche.dev_"+profile+".sock")
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return api.NewDevicePluginClient(connection)
}

// devicesOf are the devices that a plugin lists.
func devicesOf(t *testing.T, plugin api.DevicePluginClient) []string {
	t.Helper()
	stream, err := plugin.ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, device := range list.Devices {
		ids = append(ids, device.ID)
	}
	return ids
}

// allocate is the one CDI device that a container with this device gets.
func allocate(plugin api.DevicePluginClient, id string) (string, error) {
	request := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{id}}}}
	answer, err := plugin.Allocate(context.Background(), request)
	if err != nil {
		return "", err
	}
	if devices := answer.ContainerResponses[0].CdiDevices; len(devices) == 1 {
		return devices[0].Name, nil
	}
	return "", fmt.Errorf("it gets %v", answer)
}
