/** Folders with a separate configuration of Vitest, because their tests take minutes or need a kube-apiserver. */
export const ELSEWHERE: readonly string[] = ['long', 'apiserver'];

/**
 * The test files that run in a separate process, because they use the kernel, measure or change the process, or have
 * short deadlines. All others share processes, so they must leave no state that another file can see.
 */
export const ISOLATED: readonly string[] = [
  'cli/exit-soon',
  'datapath/linux/agent',
  'datapath/linux/bad-host',
  'datapath/linux/bpf/bpf-map',
  'datapath/linux/demonstration',
  'datapath/linux/harness',
  'datapath/linux/ipcache-map',
  'datapath/linux/netlink/netlink-socket',
  'datapath/linux/nftables/nft-services',
  'datapath/linux/node-ports',
  'datapath/linux/part-locks',
  'datapath/linux/paths/disturbances',
  'datapath/linux/paths/kept-equal',
  'datapath/linux/paths/pod-to-pod',
  'datapath/linux/pins',
  'datapath/linux/services',
  'datapath/linux/services/host-addresses',
  'datapath/linux/services/service-table',
  'datapath/linux/services/sockets',
  'datapath/linux/syscall/kernel',
  'datapath/linux/traffic/identity-traffic',
  'kvstore/chaos/chaos',
  'kvstore/etcd/etcd-streams',
  'operator/etcd/mesh',
  'sysdump/archives',
];

/**
 * The test files that take longest, in the order of their starts: those that mostly wait for other processes, then
 * those that use the processor for 4 s or more.
 */
export const SLOWEST: readonly string[] = [
  'kvstore/chaos/chaos',
  'operator/etcd/mesh',
  'datapath/linux/demonstration',
  'datapath/linux/services',
  'datapath/linux/paths/disturbances',
  'datapath/linux/paths/kept-equal',
  'datapath/linux/pins',
  'kvstore/etcd/etcd-contract',
  'ui/page',
  'package/packed',
  'ui/views',
  'ui/health',
  'cli/signals',
  'kvstore/etcd/etcd-slow-link',
  'ui/process',
  'kvstore/etcd/etcd-auth',
  'kvstore/etcd/etcd-auth-changes',
  'examples',
  'demo-mesh',
  'ui/what-if',
  'clustermesh/mesh-laws',
  'operator/kvstoremesh/laws',
  'client/agent-diff',
  'nodemanager/laws',
  'arguments',
  'history/history',
  'conformance/ipcache',
  'servicecache/laws',
  'conformance/operator',
  'tape/replay-laws',
  'kvstore/watch/watch-laws',
  'history/disk',
  'history/limits',
  'k8s/object-scanner',
  'sysdump/planted-faults',
  'whatif/what-if',
  'restore/checkpoint',
  'k8s/memory/http-contract',
  'api/server/api-server',
  'sharedlookup/limits',
  'nodemanager/many-addresses',
  'ipcache/laws',
  'cli/output',
];
