// Looks up IPv4 addresses in a map under a sync.RWMutex while another goroutine changes it: the same rounds as those of
// the workers in ../reader.ts. Arguments: entries, addresses looked up under one lock, milliseconds of a round,
// milliseconds between two batches of changes, and the numbers of changes per second, separated by commas. Prints one
// JSON document.
package main

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

type entry struct {
	identity uint32
	host     uint32
	key      uint8
}

type table struct {
	sync.RWMutex
	entries map[uint32]entry
}

type row struct {
	Workers      int     `json:"workers"`
	Rate         int     `json:"rate"`
	Applied      float64 `json:"applied"`
	Lookups      float64 `json:"lookups"`
	LookupsOfCPU float64 `json:"lookupsOfCpu"`
}

type report struct {
	BytesPerEntry float64 `json:"bytesPerEntry"`
	ChangeUs      float64 `json:"changeUs"`
	Rows          []row   `json:"rows"`
}

// threadSeconds returns the CPU time of this thread.
func threadSeconds() float64 {
	var time syscall.Timespec
	const threadCPUTime = 3
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Sec) + float64(time.Nsec)/1e9
}

func entryOf(i, round uint32) entry {
	return entry{identity: 65536 + (i+round)%5000, host: 0xc0a80000 + i%4<<8 + i%250}
}

func number(at int) int {
	n, err := strconv.Atoi(os.Args[at])
	if err != nil {
		panic(err)
	}
	return n
}

// order returns the addresses in a random order, which each worker starts somewhere else.
func order(entries int) []uint32 {
	list := make([]uint32, entries)
	random := uint32(7)
	for i := range list {
		random = random*1664525 + 1013904223
		at := int(uint64(random) * uint64(i+1) >> 32)
		list[i] = list[at]
		list[at] = 0x0a000000 + uint32(i)
	}
	return list
}

func main() {
	runtime.GOMAXPROCS(2)
	entries, group := number(1), number(2)
	round, pause := time.Duration(number(3))*time.Millisecond, time.Duration(number(4))*time.Millisecond

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t := &table{entries: map[uint32]entry{}}
	for i := uint32(0); i < uint32(entries); i++ {
		t.entries[0x0a000000+i] = entryOf(i, 0)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	addresses := order(entries)
	next, rounds := 0, uint32(1)
	write := func(changes int) {
		t.Lock()
		for ; changes > 0; changes-- {
			i := uint32(next * 7919 % entries)
			t.entries[0x0a000000+i] = entryOf(i, rounds)
			if next++; next == entries {
				next, rounds = 0, rounds+1
			}
		}
		t.Unlock()
	}

	result := report{BytesPerEntry: float64(after.HeapAlloc-before.HeapAlloc) / float64(entries)}
	runtime.LockOSThread()
	begun := threadSeconds()
	for n := 0; n < 1000; n++ {
		write(500)
	}
	result.ChangeUs = (threadSeconds() - begun) * 1e6 / 500_000

	read := func(worker int, end time.Time, rates chan<- [2]float64) {
		runtime.LockOSThread()
		begun, begunCPU := time.Now(), threadSeconds()
		at, lookups := worker*entries/2, 0
		identities := make([]uint32, group)
		for time.Now().Before(end) {
			for turn := 0; turn < 64; turn++ {
				t.RLock()
				for i := range identities {
					if at++; at >= entries {
						at = 0
					}
					found, ok := t.entries[addresses[at]]
					if !ok {
						panic("not found")
					}
					identities[i] = found.identity
				}
				t.RUnlock()
				lookups += group
			}
		}
		rates <- [2]float64{float64(lookups) / time.Since(begun).Seconds(), float64(lookups) / (threadSeconds() - begunCPU)}
	}
	for workers := 1; workers <= 2; workers++ {
		for _, text := range strings.Split(os.Args[5], ",") {
			rate, err := strconv.Atoi(text)
			if err != nil {
				panic(err)
			}
			rates := make(chan [2]float64, workers)
			begun := time.Now()
			end := begun.Add(round)
			for worker := 0; worker < workers; worker++ {
				go read(worker, end, rates)
			}
			applied := 0
			for time.Now().Before(end) {
				due := int(time.Since(begun).Seconds()*float64(rate)) - applied
				write(due)
				applied += due
				time.Sleep(pause)
			}
			r := row{Workers: workers, Rate: rate, Applied: float64(applied) / time.Since(begun).Seconds()}
			for worker := 0; worker < workers; worker++ {
				of := <-rates
				r.Lookups += of[0]
				r.LookupsOfCPU += of[1]
			}
			result.Rows = append(result.Rows, r)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		panic(err)
	}
}
