// The Go clients of the load: net/http with its defaults, which is what client-go stands on. The load starts this program, writes a
// job to its standard input and then a speed whenever it changes, and reads one line for everything a client saw.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type class struct {
	Number    int    `json:"number"`
	Protocol  string `json:"protocol"`
	Asks      string `json:"asks"`
	Streams   int    `json:"streams"`
	PeriodMs  int    `json:"period_ms"`
	Fresh     bool   `json:"fresh"`
	ListBytes int    `json:"list_bytes"`
	// How an answer is read and a body is sent; 0: at once.
	ReadAtOnce   int `json:"read_at_once"`
	Pieces       int `json:"pieces"`
	PiecePauseMs int `json:"piece_pause_ms"`
	// Of an object, and of a request with the white space behind it.
	DataBytes  int `json:"data_bytes"`
	BodyBytes  int `json:"body_bytes"`
	DelayMs    int `json:"delay_ms"`
	CalmFactor int `json:"calm_factor"`
}

type job struct {
	Front       string  `json:"front"`
	ConfigMaps  string  `json:"config_maps"`
	CA          string  `json:"ca"`
	Token       string  `json:"token"`
	Run         string  `json:"run"`
	Seed        string  `json:"seed"`
	From        string  `json:"from"`
	BeganUnixUs int64   `json:"began_unix_us"`
	CalmMs      int     `json:"calm_ms"`
	Classes     []class `json:"classes"`
}

// Everything that is said goes through here; a line is written whole.
var (
	out   = bufio.NewWriterSize(os.Stdout, 1<<16)
	outMu sync.Mutex
)

func say(format string, words ...any) {
	outMu.Lock()
	defer outMu.Unlock()
	fmt.Fprintf(out, format+"\n", words...)
}

// gate is the speed everyone asks at: calm, full or over.
type gate struct {
	mu      sync.Mutex
	speed   string
	changed chan struct{}
}

func (g *gate) set(speed string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.speed = speed
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) now() (string, chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.speed, g.changed
}

// next waits until the request after the one that began at began is due.
func (g *gate) next(j *job, c class, began time.Time) bool {
	for {
		speed, changed := g.now()
		pause := time.Duration(c.PeriodMs) * time.Millisecond
		switch {
		case speed == "over":
			return false
		case speed == "full" && pause == 0:
			return true
		case speed == "calm" && pause == 0:
			pause = time.Duration(j.CalmMs) * time.Millisecond
			if c.Asks == "post" {
				pause *= time.Duration(c.CalmFactor)
			}
		case speed == "calm" && (c.Fresh || c.isCostly()):
			pause *= time.Duration(c.CalmFactor)
		}
		timer := time.NewTimer(time.Until(began.Add(pause)))
		select {
		case <-timer.C:
			return true
		case <-changed:
			timer.Stop()
		}
	}
}

func (c class) isCostly() bool {
	switch c.Asks {
	case "list", "slowread", "upload", "largeupload", "post":
		return true
	}
	return false
}

func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(text)
}

func main() {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	var j job
	if err != nil || json.Unmarshal(line, &j) != nil {
		fmt.Fprintln(os.Stderr, "the first line must be a job")
		os.Exit(2)
	}
	g := &gate{speed: "calm", changed: make(chan struct{})}
	var clients sync.WaitGroup
	for _, c := range j.Classes {
		client := newClient(&j, c)
		for stream := range max(c.Streams, 1) {
			if c.Asks == "watch" {
				// Ends with the program: whoever reads it knows when every event has come.
				go client.watch()
				continue
			}
			clients.Add(1)
			go func() {
				defer clients.Done()
				client.run(g, stream)
			}()
		}
	}
	var done atomic.Bool
	go func() {
		for !done.Load() {
			time.Sleep(20 * time.Millisecond)
			outMu.Lock()
			out.Flush()
			outMu.Unlock()
		}
	}()
	for {
		word, err := in.ReadString('\n')
		if err != nil {
			break
		}
		g.set(strings.TrimSpace(word))
		if strings.TrimSpace(word) == "over" {
			clients.Wait()
			say("over")
		}
	}
	done.Store(true)
	outMu.Lock()
	defer outMu.Unlock()
	out.Flush()
}
