package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// stage is where the demonstration happens: it tells what is going on, and clears up when it is over.
type stage struct {
	begun    time.Time
	cleanups []func()
	broken   bool
}

func (s *stage) step(text string) {
	fmt.Printf("\n[%5.1f s] %s\n", time.Since(s.begun).Seconds(), text)
}

func (s *stage) line(format string, args ...any) {
	fmt.Printf("          "+format+"\n", args...)
}

// claim says whether what was promised came about.
func (s *stage) claim(name string, is, want any) {
	verdict := "holds"
	if is != want {
		verdict = fmt.Sprintf("DOES NOT HOLD, it should be %v", want)
		s.broken = true
	}
	s.line("%-44s %14v   %s", name, is, verdict)
}

// clear ends everything, the latest first.
func (s *stage) clear() {
	for _, cleanup := range slices.Backward(s.cleanups) {
		cleanup()
	}
	s.cleanups = nil
}

// Helper implements node.Judge.
func (s *stage) Helper() {}

// Cleanup implements node.Judge.
func (s *stage) Cleanup(cleanup func()) { s.cleanups = append(s.cleanups, cleanup) }

// Failed implements node.Judge.
func (s *stage) Failed() bool { return s.broken }

// Logf implements node.Judge.
func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatalf implements node.Judge.
func (s *stage) Fatalf(format string, args ...any) {
	s.broken = true
	s.Logf("demo-kubelet: "+format, args...)
	s.clear()
	os.Exit(1)
}
