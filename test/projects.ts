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
 * those that use the processor for 5 s or more.
 */
export const SLOWEST: readonly string[] = [
  'kvstore/etcd/etcd-contract',
  'kvstore/chaos/chaos',
  'operator/etcd/mesh',
  'package/packed',
  'datapath/linux/demonstration',
  'cli/signals',
  'datapath/linux/pins',
  'datapath/linux/services',
  'ui/page',
  'ui/views',
  'ui/health',
  'kvstore/etcd/etcd-slow-link',
  'ui/process',
  'kvstore/etcd/etcd-auth',
  'kvstore/etcd/etcd-auth-changes',
  'clustermesh/mesh-laws',
  'examples',
  'restore/checkpoint',
  'k8s/memory/http-contract',
  'kvstore/watch/watch-laws',
  'arguments',
  'nodemanager/laws',
  'history/history',
  'demo-mesh',
  'conformance/operator',
  'operator/kvstoremesh/laws',
  'servicecache/laws',
  'nodemanager/many-addresses',
  'client/agent-diff',
  'cli/output',
  'ipcache/laws',
  'tape/replay-laws',
  'conformance/ipcache',
];
