// Follows the IPs of a cluster with etcd's client v3 and stores them in maps under a mutex: the same work as the
// original's kvstore, clustermesh and ipcache packages, without their bookkeeping. See ../protocol.ts for its input and
// output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
)

type namedPort struct {
	Name     string
	Port     uint16
	Protocol string
}

type ipIdentityPair struct {
	IP           net.IP
	Mask         net.IPMask
	HostIP       net.IP
	ID           uint32
	Key          uint8
	Metadata     string
	K8sNamespace string      `json:",omitempty"`
	K8sPodName   string      `json:",omitempty"`
	NamedPorts   []namedPort `json:",omitempty"`
}

type task struct {
	Endpoint string `json:"endpoint"`
	Prefix   string `json:"prefix"`
	Keys     int    `json:"keys"`
}

type part struct {
	Part     string  `json:"part"`
	Ms       float64 `json:"ms"`
	CPUMs    float64 `json:"cpuMs"`
	PeakMB   float64 `json:"peakMB"`
	SteadyMB float64 `json:"steadyMB"`
	FirstMs  float64 `json:"firstMs,omitempty"`
}

type cache struct {
	mutex      sync.RWMutex
	byIP       map[string]ipIdentityPair
	byIdentity map[uint32]map[string]struct{}
	hosts      map[string]net.IP
}

func (c *cache) upsert(ip string, pair ipIdentityPair) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if old, ok := c.byIP[ip]; ok && old.ID != pair.ID {
		delete(c.byIdentity[old.ID], ip)
	}
	c.byIP[ip] = pair
	c.hosts[ip] = pair.HostIP
	ips := c.byIdentity[pair.ID]
	if ips == nil {
		ips = map[string]struct{}{}
		c.byIdentity[pair.ID] = ips
	}
	ips[ip] = struct{}{}
}

func (c *cache) remove(ip string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if old, ok := c.byIP[ip]; ok {
		delete(c.byIdentity[old.ID], ip)
		delete(c.byIP, ip)
		delete(c.hosts, ip)
	}
}

func cpuMs() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	ms := func(t syscall.Timeval) float64 { return float64(t.Sec)*1e3 + float64(t.Usec)/1e3 }
	return ms(usage.Utime) + ms(usage.Stime)
}

func peakMB() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Maxrss) / 1024
}

func residentMB() float64 {
	debug.FreeOSMemory()
	text, _ := os.ReadFile("/proc/self/statm")
	pages, _ := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

func report(name string, begun time.Time, cpu float64, first float64) {
	line := part{name, float64(time.Since(begun).Microseconds()) / 1e3, cpuMs() - cpu, peakMB(), 0, first}
	line.SteadyMB = residentMB()
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

const page = 1000 // as pkg/kvstore of the original

func main() {
	begun := time.Now()
	var t task
	if err := json.Unmarshal([]byte(os.Args[1]), &t); err != nil {
		panic(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{t.Endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	ips := &cache{byIP: map[string]ipIdentityPair{}, byIdentity: map[uint32]map[string]struct{}{}, hosts: map[string]net.IP{}}
	known := map[string]int64{}
	var first float64
	put := func(key string, value []byte, revision int64) {
		known[key] = revision
		var pair ipIdentityPair
		if err := json.Unmarshal(value, &pair); err != nil {
			panic(err)
		}
		ips.upsert(key[len(t.Prefix):], pair)
		if first == 0 {
			first = float64(time.Since(begun).Microseconds()) / 1e3
		}
	}
	end := clientv3.GetPrefixRangeEnd(t.Prefix)
	list := func() (int64, error) {
		revision := int64(0)
		for start := t.Prefix; ; {
			answer, err := client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
			if err != nil {
				return 0, err
			}
			revision = answer.Header.Revision
			for _, kv := range answer.Kvs {
				if known[string(kv.Key)] != kv.ModRevision {
					put(string(kv.Key), kv.Value, kv.ModRevision)
				}
			}
			if !answer.More {
				return revision, nil
			}
			start = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
		}
	}
	revision, err := list()
	if err != nil {
		panic(err)
	}
	if len(ips.byIP) != t.Keys {
		panic(fmt.Sprintf("%d IPs", len(ips.byIP)))
	}
	report("list", begun, 0, first)

	parts := make(chan string)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			parts <- input.Text()
		}
		os.Exit(0)
	}()
	watch := client.Watch(ctx, t.Prefix, clientv3.WithRange(end), clientv3.WithRev(revision+1))
	changes, until := 0, 0
	var cpu float64
	var since time.Time
	for {
		select {
		case name := <-parts:
			since, cpu = time.Now(), cpuMs()
			if name == "watch" {
				until = t.Keys // the writer may be ahead of this line
				if changes >= until {
					report("watch", since, cpu, 0)
				}
				continue
			}
			for {
				time.Sleep(500 * time.Millisecond)
				if _, err := list(); err == nil {
					break
				}
			}
			report(name, since, cpu, 0)
		case answer := <-watch:
			for _, event := range answer.Events {
				changes++
				if event.Type == clientv3.EventTypeDelete {
					delete(known, string(event.Kv.Key))
					ips.remove(string(event.Kv.Key)[len(t.Prefix):])
				} else {
					put(string(event.Kv.Key), event.Kv.Value, event.Kv.ModRevision)
				}
			}
			if until > 0 && changes >= until && changes-len(answer.Events) < until {
				report("watch", since, cpu, 0)
			}
		}
	}
}
