package node

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a child that is ended with its test, and by the kernel should the test die first.
type Process struct {
	command *exec.Cmd
	log     string
	over    chan struct{}
}

// start starts a command whose output goes to the end of a file.
func start(command *exec.Cmd, log string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if command.Stdout == nil {
		command.Stdout = file
	}
	command.Stderr = file
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	process := &Process{command: command, log: log, over: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(process.over)
	}()
	return process, nil
}

// Log is what it and its predecessors have said.
func (p *Process) Log() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// Pid is its pid.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Runs is whether it has not ended.
func (p *Process) Runs() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// Kill ends it with SIGKILL, and its group with it.
func (p *Process) Kill() {
	if !p.Runs() {
		return
	}
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	<-p.over
}

// Stop asks it to end, and says with which code it did; -1 if it had to be killed.
func (p *Process) Stop() int {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.over:
	case <-time.After(Patience):
		p.Kill()
	}
	return p.command.ProcessState.ExitCode()
}
