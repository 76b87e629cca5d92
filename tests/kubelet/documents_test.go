package kubelet_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tranche.dev/tests/kubelet/kubelet"
)

// document is one of those that container runtimes read, as far as names go.
type document struct {
	Kind    string
	Devices []struct{ Name string }
}

func TestTheCdiDeviceOfAContainerIsThereForItsRuntime(t *testing.T) {
	n := bareMachine(t)
	dir := filepath.Join(n.Dir, "cdi")
	n.Configuration = fmt.Sprintf("cdi_dir = '%s'\n", dir)
	n.StartDaemon()
	k := attend(n)
	if there := devicesIn(t, dir); len(there) != 0 {
		t.Errorf("before there is any pod, there are %v", there)
	}
	want := append(k.Run(kubelet.One("one", big, 1))["main"].CDI, k.Run(kubelet.One("two", small, 2))["main"].CDI...)
	slices.Sort(want)
	if there := devicesIn(t, dir); !slices.Equal(there, want) {
		t.Errorf("containers get %v, and runtimes know %v", want, there)
	}
	n.KillDaemon()
	n.StartDaemon()
	if there := devicesIn(t, dir); !slices.Equal(there, want) {
		t.Errorf("after a restart of the daemon, runtimes know %v", there)
	}
}

// devicesIn are the devices that documents in a directory describe, by their full names.
func devicesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var says document
		if err := json.Unmarshal(text, &says); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, device := range says.Devices {
			names = append(names, says.Kind+"="+device.Name)
		}
	}
	slices.Sort(names)
	return names
}
