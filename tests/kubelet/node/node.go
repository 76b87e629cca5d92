// Package node is a machine with simulated GPUs, the real daemon and the real device plugin.
package node

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Patience is how long anything may take that is waited for, on a machine that is busy with other tests.
const Patience = 30 * time.Second

// Judge is who is told that something failed, and what to do at the end: a test, or the demonstration.
type Judge interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// Node is the machine: made for one test, gone with it.
type Node struct {
	// Dir holds all that belongs to it. Its name is short, because sockets lie below.
	Dir string
	// Configuration is the daemon's, from when it is started next.
	Configuration string
	// PluginEnvironment is what the plugin finds in its environment beyond what every program does.
	PluginEnvironment []string
	// Judge hears of what fails.
	Judge  Judge
	stage  string
	daemon *Process
	plugin *Process
}

// New is a machine of GPUs as the preset names them. Nothing runs on it yet.
func New(judge Judge, preset string) *Node {
	judge.Helper()
	dir, err := os.MkdirTemp("", "kubelet-")
	if err != nil {
		judge.Fatalf("a directory cannot be made: %v", err)
	}
	n := &Node{Dir: dir, Judge: judge, stage: stage(judge)}
	judge.Cleanup(n.end)
	n.Must("simgpu", "create", "--preset", preset, n.gpus())
	return n
}

// stage is the tree that `make build` makes.
func stage(judge Judge) string {
	judge.Helper()
	root := os.Getenv("TRANCHE_STAGE")
	for _, part := range []string{"bin/tranched", "bin/tranche-deviceplugin", "bin/simgpu", "sim/libcuda.so.1"} {
		if _, err := os.Stat(filepath.Join(root, part)); root == "" || err != nil {
			judge.Fatalf("%s/%s is missing: run `make build`, and name the tree in TRANCHE_STAGE", root, part)
		}
	}
	return root
}

func (n *Node) gpus() string   { return filepath.Join(n.Dir, "gpus") }
func (n *Node) socket() string { return filepath.Join(n.Dir, "run/tranched.sock") }

// KubeletDir is the directory of the kubelet's and the plugins' sockets.
func (n *Node) KubeletDir() string { return filepath.Join(n.Dir, "device-plugins") }

// PodsSocket is where the kubelet tells which pod has what.
func (n *Node) PodsSocket() string { return filepath.Join(n.Dir, "pods.sock") }

// Command is a staged program that finds the simulated driver and the daemon, and nothing else of ours.
func (n *Node) Command(program string, arguments ...string) *exec.Cmd {
	command := exec.Command(n.Staged(program), arguments...)
	command.Dir = n.Dir
	command.Env = append(foreign(os.Environ()),
		"LD_LIBRARY_PATH="+filepath.Join(n.stage, "sim"), "SIMGPU_NODE="+n.gpus(), "TRANCHE_SOCKET="+n.socket())
	return command
}

// foreign is an environment without what would make a difference to us.
func foreign(environment []string) []string {
	var rest []string
	for _, variable := range environment {
		ours := false
		for _, prefix := range []string{"TRANCHE_", "CUDA_", "NVIDIA_", "SIMGPU_", "LD_"} {
			ours = ours || strings.HasPrefix(variable, prefix)
		}
		if !ours {
			rest = append(rest, variable)
		}
	}
	return rest
}

// Run runs a staged program to its end.
func (n *Node) Run(program string, arguments ...string) (string, error) {
	command := n.Command(program, arguments...)
	said := new(strings.Builder)
	command.Stderr = said
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, said)
	}
	return string(out), err
}

// Must is Run for what has to succeed.
func (n *Node) Must(program string, arguments ...string) string {
	n.Judge.Helper()
	out, err := n.Run(program, arguments...)
	if err != nil {
		n.Judge.Fatalf("%v", err)
	}
	return out
}

// SetGpu has the driver of a GPU behave otherwise from now on.
func (n *Node) SetGpu(gpu int, options ...string) {
	n.Judge.Helper()
	n.Must("simgpu", append([]string{"set", n.gpus(), "--gpu", fmt.Sprint(gpu)}, options...)...)
}

// StartDaemon starts the daemon and waits until it answers.
func (n *Node) StartDaemon() {
	n.Judge.Helper()
	command := n.Command("tranched", "--runtime-dir", filepath.Join(n.Dir, "run"),
		"--state-dir", filepath.Join(n.Dir, "state"), "--config", n.file("tranched.toml", n.Configuration))
	n.daemon = n.start(command, "tranched.log")
	n.Eventually("the daemon answers", func() error {
		_, err := n.Run("tranche", "smi", "--json")
		return err
	})
}

// KillDaemon ends the daemon with SIGKILL.
func (n *Node) KillDaemon() { n.daemon.Kill() }

// StartPlugin starts the installed plugin with these profiles.
func (n *Node) StartPlugin(profiles string) {
	n.Judge.Helper()
	places := fmt.Sprintf("tranched_socket = '%s'\nkubelet_dir = '%s'\npod_resources_socket = '%s'\nrecovery_s = 2\n",
		n.socket(), n.KubeletDir(), n.PodsSocket())
	config := n.file("deviceplugin.toml", places+profiles)
	command := n.Command("tranche-deviceplugin", "--config", config)
	command.Env = append(command.Env, n.PluginEnvironment...)
	n.plugin = n.start(command, "plugin.log")
}

// KillPlugin ends the plugin with SIGKILL.
func (n *Node) KillPlugin() { n.plugin.Kill() }

// StopPlugin ends the plugin as an operator would, and says its exit code.
func (n *Node) StopPlugin() int { return n.plugin.Stop() }

// PluginSays is an error unless the plugin or a predecessor has said it.
func (n *Node) PluginSays(what string) error {
	if said := n.plugin.Log(); !strings.Contains(said, what) {
		return fmt.Errorf("it has said\n%s", said)
	}
	return nil
}

// Staged is where a staged program is.
func (n *Node) Staged(program string) string { return filepath.Join(n.stage, "bin", program) }

// Start starts a staged program that goes on.
func (n *Node) Start(log, program string, arguments ...string) *Process {
	n.Judge.Helper()
	return n.start(n.Command(program, arguments...), log)
}

// file writes a file of the machine, and says where it is.
func (n *Node) file(name, text string) string {
	n.Judge.Helper()
	path := filepath.Join(n.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.Judge.Fatalf("%s cannot be written: %v", path, err)
	}
	return path
}

func (n *Node) start(command *exec.Cmd, log string) *Process {
	n.Judge.Helper()
	process, err := start(command, filepath.Join(n.Dir, log))
	if err != nil {
		n.Judge.Fatalf("%s does not start: %v", command.Path, err)
	}
	n.Judge.Cleanup(process.Kill)
	return process
}

// Eventually waits until something is so, and fails with what still was not.
func (n *Node) Eventually(what string, look func() error) {
	n.Judge.Helper()
	n.Within(Patience, what, look)
}

// Within is Eventually for what may take longer.
func (n *Node) Within(patience time.Duration, what string, look func() error) {
	n.Judge.Helper()
	end := time.Now().Add(patience)
	for complaint := look(); complaint != nil; complaint = look() {
		if time.Now().After(end) {
			n.Judge.Fatalf("%s: still not so after %v: %v", what, patience, complaint)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// end shows what everybody said if the test failed, and leaves nothing behind.
func (n *Node) end() {
	for _, log := range []string{"tranched.log", "plugin.log", "kubelet.log"} {
		if text, err := os.ReadFile(filepath.Join(n.Dir, log)); err == nil && n.Judge.Failed() {
			n.Judge.Logf("--- %s\n%s", log, text)
		}
	}
	_ = os.RemoveAll(n.Dir)
}

// Self starts this very program again, in a role that a variable names, and talks to it through its standard
// input and output.
func (n *Node) Self(role, log string) (*Process, io.ReadWriteCloser) {
	n.Judge.Helper()
	program, err := os.Executable()
	if err != nil {
		n.Judge.Fatalf("this program is nowhere: %v", err)
	}
	command := exec.Command(program)
	command.Dir, command.Env = n.Dir, append(os.Environ(), role)
	theirs, ours, err := pair()
	if err != nil {
		n.Judge.Fatalf("a pair of sockets cannot be made: %v", err)
	}
	defer theirs.Close()
	command.Stdin, command.Stdout = theirs, theirs
	return n.start(command, log), ours
}

// pair is two ends of one conversation.
func pair() (theirs, ours *os.File, err error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(ends[0]), "theirs"), os.NewFile(uintptr(ends[1]), "ours"), nil
}
