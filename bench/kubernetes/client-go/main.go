// Follows an API server with client-go's informers until it is killed, and prints the costs as JSON lines: see
// ../protocol.ts. CiliumEndpoints are decoded into structs with the fields that Cilium reads, services and slices into
// those of client-go, from protobuf.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type task struct {
	Server       string `json:"server"`
	CA           string `json:"ca"`
	Token        string `json:"token"`
	Endpoints    int    `json:"endpoints"`
	Services     int    `json:"services"`
	Burst        int    `json:"burst"`
	BurstPrefix  string `json:"burstPrefix"`
	ChangePrefix string `json:"changePrefix"`
}

type part struct {
	Ms     int64 `json:"ms"`
	CPUMs  int64 `json:"cpuMs"`
	PeakMB int64 `json:"peakMB"`
}

var writing sync.Mutex

func printReport(report map[string]interface{}) {
	line, err := json.Marshal(report)
	check(err)
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func usage() (cpu time.Duration, peakMB int64) {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), used.Maxrss / 1024
}

func measure(work func()) part {
	before, _ := usage()
	begun := time.Now()
	work()
	ms := time.Since(begun).Milliseconds()
	after, peakMB := usage()
	return part{Ms: ms, CPUMs: (after - before).Milliseconds(), PeakMB: peakMB}
}

func liveMB() float64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc) / (1 << 20)
}

// counter closes `all` when all addresses of the burst have arrived.
type counter struct {
	task task
	seen map[string]struct{}
	all  chan struct{}
}

func (c *counter) onEndpoint(object interface{}) {
	endpoint, ok := object.(*CiliumEndpoint)
	if !ok || endpoint.Status.Networking == nil {
		return
	}
	for _, address := range endpoint.Status.Networking.Addressing {
		ip := address.IPv4
		if strings.HasPrefix(ip, c.task.ChangePrefix) {
			printReport(map[string]interface{}{"type": "change", "ip": ip, "at": time.Now().UnixNano() / 1e6})
		}
		if !strings.HasPrefix(ip, c.task.BurstPrefix) {
			continue
		}
		if _, known := c.seen[ip]; !known {
			c.seen[ip] = struct{}{}
			if len(c.seen) == c.task.Burst {
				close(c.all)
			}
		}
	}
}

func client(config rest.Config, group schema.GroupVersion, contentType string) *rest.RESTClient {
	config.GroupVersion = &group
	config.APIPath = "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.ContentType = contentType
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	made, err := rest.RESTClientFor(&config)
	check(err)
	return made
}

func main() {
	var todo task
	check(json.Unmarshal([]byte(os.Args[1]), &todo))
	cilium := schema.GroupVersion{Group: "cilium.io", Version: "v2"}
	scheme.Scheme.AddKnownTypes(cilium, &CiliumEndpoint{}, &CiliumEndpointList{})
	addListOptions(cilium)

	config := rest.Config{Host: todo.Server, BearerToken: todo.Token, QPS: -1, DisableCompression: true}
	config.TLSClientConfig.CAFile = todo.CA
	burst := &counter{task: todo, seen: map[string]struct{}{}, all: make(chan struct{})}
	handlers := cache.ResourceEventHandlerFuncs{
		AddFunc:    burst.onEndpoint,
		UpdateFunc: func(_, now interface{}) { burst.onEndpoint(now) },
	}
	follow := func(from *rest.RESTClient, plural string, kind apiruntime.Object, h cache.ResourceEventHandler) (cache.Store, cache.Controller) {
		return cache.NewInformer(cache.NewListWatchFromClient(from, plural, "", fields.Everything()), kind, 0, h)
	}
	const protobuf = "application/vnd.kubernetes.protobuf"
	var none cache.ResourceEventHandlerFuncs
	endpoints, c1 := follow(client(config, cilium, "application/json"), "ciliumendpoints", &CiliumEndpoint{}, handlers)
	services, c2 := follow(client(config, corev1.SchemeGroupVersion, protobuf), "services", &corev1.Service{}, none)
	slices, c3 := follow(client(config, discoveryv1beta1.SchemeGroupVersion, protobuf), "endpointslices", &discoveryv1beta1.EndpointSlice{}, none)

	stop := make(chan struct{})
	synced := measure(func() {
		for _, controller := range []cache.Controller{c1, c2, c3} {
			go controller.Run(stop)
		}
		for !(c1.HasSynced() && c2.HasSynced() && c3.HasSynced()) {
			time.Sleep(time.Millisecond)
		}
	})
	// The API server has a service of its own.
	counts := []int{len(endpoints.ListKeys()), len(services.ListKeys()), len(slices.ListKeys())}
	expected := []int{todo.Endpoints, todo.Services + 1, todo.Services}
	if fmt.Sprint(counts) != fmt.Sprint(expected) {
		check(fmt.Errorf("client-go has %v objects, expected %v", counts, expected))
	}
	printReport(map[string]interface{}{"type": "synced", "part": synced, "liveMB": liveMB()})
	printReport(map[string]interface{}{"type": "burst", "part": measure(func() { <-burst.all })})
	<-stop
}
