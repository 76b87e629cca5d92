package node

import "encoding/json"

// Picture is what `tranche smi --json` shows, as far as it is looked at here.
type Picture struct {
	Gpus   []Gpu
	Slices []Slice
}

// Gpu is one of the machine's.
type Gpu struct {
	Index     int
	UUID      string
	Capacity  uint64
	Committed uint64
	// Why no slice may be put there.
	NotSliceable *string `json:"not_sliceable"`
}

// Slice is one of the daemon's.
type Slice struct {
	Name      string
	Devices   []Part
	Processes []struct{ Pid int }
	Pod       *Pod
}

// Pod is whom a slice is for.
type Pod struct{ Namespace, Name, Container string }

// Part is what a slice has of a GPU.
type Part struct {
	Gpu  int    `json:"gpu_index"`
	UUID string `json:"gpu_uuid"`
	Cap  uint64
}

// MiB is a number of bytes.
const MiB = 1 << 20

// Smi is what the daemon shows now.
func (n *Node) Smi() Picture {
	n.Judge.Helper()
	var picture Picture
	text := n.Must("tranche", "smi", "--json")
	if err := json.Unmarshal([]byte(text), &picture); err != nil {
		n.Judge.Fatalf("tranche smi --json: %v\n%s", err, text)
	}
	return picture
}

// Slice is the one of that name.
func (n *Node) Slice(name string) Slice {
	n.Judge.Helper()
	picture := n.Smi()
	for _, slice := range picture.Slices {
		if slice.Name == name {
			return slice
		}
	}
	n.Judge.Fatalf("there is no slice %q in %+v", name, picture.Slices)
	return Slice{}
}
