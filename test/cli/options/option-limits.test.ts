import { describe, expect, it, vi } from 'vitest';
import * as runOperator from '../../../src/agent/operator/run-operator.ts';
import * as runAgent from '../../../src/agent/run-agent.ts';
import * as runKvstoreMesh from '../../../src/agent/run-kvstoremesh.ts';
import * as probe from '../../../src/datapath/linux/probe.ts';
import { dpcache } from '../support/run.ts';

/** Runs a command whose processes would end immediately. */
async function run(words: readonly string[]): Promise<{ readonly status: number; readonly stderr: string }> {
  const host = probe.readHost();
  vi.spyOn(probe, 'readHost').mockReturnValue({ ...host, libraryProblem: undefined });
  vi.spyOn(runAgent, 'followMesh').mockResolvedValue();
  vi.spyOn(runOperator, 'runOperator').mockResolvedValue();
  vi.spyOn(runKvstoreMesh, 'runKvstoreMesh').mockResolvedValue();
  const result = await dpcache(...words);
  vi.restoreAllMocks();
  return result;
}

const AGENT = 'agent --no-socket --play /p';
const LINUX = `${AGENT} --datapath linux`;
const OPERATOR = 'operator --no-socket --dry-run';
const AT_NOWHERE = '--socket /nowhere/a.sock';
const CLAIM = 'whatif upsert 10.0.0.1 --source k8s --identity 5 --socket /nowhere/a.sock';

/** The accepted and the rejected values of an option at its limits, and the message of a rejected one. */
type Limit = readonly [option: string, accepted: string, rejected: string, message: string];

const LIMITS: readonly Limit[] = [
  [`${AGENT} --max-connected-clusters 511 --cluster-id`, '0 511', '512 -1 5x 0x1', 'a number from 0 to 511'],
  [
    `${AGENT} --history-memory`,
    '1MiB 1048576B off 0',
    '1048575B 1023KiB 1 1MB 9007200000GiB',
    'at least 1MiB',
  ],
  [`${AGENT} --tape /t --tape-size`, '16MiB 16384KiB', '15MiB 16777215B off', 'at least 16MiB'],
  [`${AGENT} --timeout`, '1s 596h31m23s 24h', '0 0s 596h31m24s', 'from 1s to 596h'],
  [`${AGENT} --listen`, '0 65535 [::1]:1 localhost:1', '65536 -1 a:b 1.1.1.1:65536 123456', 'must be a port'],
  [
    `${AGENT} --listen 1 --listen-name`,
    `${'a'.repeat(254)} a.b a_b.`,
    `${'a'.repeat(255)} a:80 a..b a/b .`,
    'a DNS name without a port',
  ],
  [`${AGENT} --k8s-encrypt-key`, '0 255', '256 -1 1000 a', 'a number from 0 to 255'],
  [
    `${AGENT} --k8s-service-proxy-name`,
    `a Mine-2.x_y ${'a'.repeat(63)}`,
    `${'a'.repeat(64)} -a a. a/b a,b= https://proxy/x`,
    'the value of a label',
  ],
  [`${AGENT} --k8s-watch`, 'services,nodes policies', 'services,pods , Services', 'is not one of services'],
  [
    `${AGENT} --clustermesh-config /m --kvstore-opt`,
    'etcd.qps=1 etcd.qps=999999999',
    'etcd.qps=0 etcd.qps=1000000000 etcd.qps=1.5',
    'from 1 to 999999999',
  ],
  [`${LINUX} --datapath-capacity`, '1 16777216', '0 16777217 99999999', 'a number from 1 to 16777216'],
  [`${LINUX} --datapath-service-capacity`, '1 3355443', '0 3355444', 'a number from 1 to 3355443'],
  [`${LINUX} --datapath-pins`, '/a', 'a ./a', 'an absolute path'],
  [`${LINUX} --datapath-cgroup`, '/a', 'a', 'an absolute path'],
  [`${OPERATOR} --kvstore-lease-ttl`, '5s 1h', '4s 0', 'at least 5s'],
  [
    `${OPERATOR} --clustermesh-config /m --endpoint-slice-sync --clustermesh-endpoints-per-slice`,
    '1 100',
    '0 101 1e1 -1',
    'a number from 1 to 100',
  ],
  [`${OPERATOR} --mcs-ip-families`, 'IPv4 IPv6 IPv4,IPv6', 'IPv6,IPv4 ipv4', 'Allowed choices are'],
  // regression: an agent accepted names that no cluster may have
  [`${AGENT} --cluster`, `a ${'a'.repeat(32)}`, `A ${'a'.repeat(33)} -a a_b`, 'at most 32 characters'],
  [`${OPERATOR} --cluster`, `a ${'a'.repeat(32)}`, `A ${'a'.repeat(33)} -a`, 'at most 32 characters'],
  [
    `ipcache list ${AT_NOWHERE} --identity`,
    '0 4294967295',
    '4294967296 -1 99999999999',
    'from 0 to 4294967295',
  ],
  [`ipcache list ${AT_NOWHERE} --limit`, '1 999999999', '0 1000000000 1.5', 'from 1 to 999999999'],
  [
    `ipcache list ${AT_NOWHERE} --within`,
    '10.0.0.0/8 ::/0',
    '10.0.0.0/33 10.0.0.300',
    'an IP address or a CIDR',
  ],
  [`ipcache list ${AT_NOWHERE} --node`, '10.0.0.1', 'n1', 'an IP address or a CIDR'],
  [`ipcache list ${AT_NOWHERE} --pod`, 'a/b', 'a a/b/c /b a/', 'must be namespace/name'],
  [`ipcache list ${AT_NOWHERE} --at`, '-1h #5 2026-01-01T00:00:00Z', 'x', 'must be a time'],
  [`ipcache get ${AT_NOWHERE}`, '10.0.0.1 10.0.0.0/8', '10.0.0.300 a', 'an IP address or a CIDR'],
  [`service get ${AT_NOWHERE}`, 'a/b', 'a a/b/c', 'must be namespace/name'],
  [`node get ${AT_NOWHERE}`, 'a/b', 'a a/b/c', 'must be cluster/name'],
  [`identity get ${AT_NOWHERE}`, '0 4294967295', '4294967296 a', 'from 0 to 4294967295'],
  [`history ${AT_NOWHERE}`, '10.0.0.1 10.0.0.0/8 a/b', 'a a/b/c', 'a name with one /'],
  [`history ${AT_NOWHERE} --from`, '-1h #5', 'x', 'must be a time'],
  [`history ${AT_NOWHERE} --window 5s --around`, '-1h', 'x', 'must be a time'],
  [`monitor ${AT_NOWHERE} --type`, 'ip ip,service,node', 'pod ip, ip,pod', 'one or more of'],
  [
    `monitor ${AT_NOWHERE} --from`,
    `0 999999999999999 a-1.5 ${'a'.repeat(40)}.1`,
    `1000000000000000 ${'a'.repeat(41)}.1 x. -1`,
    'a revision or the id of an event',
  ],
  [`${CLAIM} --encrypt-key`, '0 255', '256 -1 x', 'a number from 0 to 255'],
  [`${CLAIM} --host-ip`, '10.0.0.1 ::1', '10.0.0.0/8 x', 'must be an IP address'],
  [`${CLAIM} --pod`, 'a/b', 'a a/b/c', 'must be namespace/name'],
  [
    `whatif setting ${AT_NOWHERE}`,
    'encryption=true underlay=ipv6 host-firewall=false node-encryption=true remote-node-identities=false',
    'encryption=yes underlay=true mtu=1 encryption encryption=ipv6 encryption=',
    'must be SETTING=VALUE',
  ],
  [`whatif remove-cluster ${AT_NOWHERE}`, 'far', 'far/a', 'a non-empty name without /'],
  [`whatif remove-node ${AT_NOWHERE}`, 'far/a', 'far far/a/b', 'must be cluster/name'],
  [`whatif drain-node ${AT_NOWHERE}`, 'far/a', 'far far/a/b', 'must be cluster/name'],
  [`whatif rank ${AT_NOWHERE} k8s`, 'above below', 'beside', 'Allowed choices are above, below'],
];

describe('an option at its limit', () => {
  it.each(LIMITS)('%s accepts %s, and rejects %s: %s', async (option, accepted, rejected, message) => {
    const tail = option.startsWith('whatif rank') ? ['kvstore'] : [];
    for (const value of accepted.split(' ')) {
      const { status, stderr } = await run([...option.split(' '), value, ...tail]);
      expect([value, status === 2 ? stderr : '']).toEqual([value, '']);
    }
    for (const value of rejected.split(' ')) {
      // A value that begins with - is that of the option.
      const words = option.split(' ');
      const last = words.at(-1) ?? '';
      const given = last.startsWith('--') ? [...words.slice(0, -1), `${last}=${value}`] : [...words, value];
      expect([value, await run([...given, ...tail])]).toEqual([
        value,
        expect.objectContaining({ status: 2, stderr: expect.stringContaining(message) }),
      ]);
    }
  });
});

/** A command line with a contradiction, and the message. */
const CONTRADICTIONS: readonly (readonly [words: string, message: string])[] = [
  ['agent --no-socket', 'no source: add --kvstore etcd'],
  [`${AGENT} --follow-nothing`, '--follow-nothing cannot be combined with a source'],
  [`${AGENT} -o json`, '-o json requires --once'],
  [`${AGENT} --import-cilium-state /s`, '--import-cilium-state requires --state-dir'],
  [`${AGENT} --history-disk 1GiB`, '--history-disk requires --state-dir'],
  [`${AGENT} --tape-size 16MiB`, '--tape-size requires --tape <folder>'],
  [`${AGENT} --history-disk 1GiB --state-dir /s --history-memory off`, 'requires --history-memory'],
  [`${AGENT} --k8s off --kubeconfig /k`, '--k8s off cannot be combined with --kubeconfig'],
  [`${AGENT} --k8s off --k8s-load /k`, '--k8s off cannot be combined with --kubeconfig'],
  [`${AGENT} --context a`, '--context requires --kubeconfig'],
  [`${AGENT} --kubeconfig a --k8s-load b`, '--k8s-load and --kubeconfig cannot be combined'],
  [`${AGENT} --kubeconfig a --manifests b`, 'cannot both define services'],
  [`${AGENT} --k8s-load a --manifests b --k8s-watch nodes,services`, 'cannot both define services'],
  [`${AGENT} --kvstore etcd`, '--kvstore etcd requires --kvstore-config'],
  [`${AGENT} --kvstore etcd --kvstore-config a --load b`, '--load and --kvstore etcd cannot be combined'],
  [`${AGENT} --kvstore-config a`, '--kvstore-config requires --kvstore etcd'],
  [`${AGENT} --kvstore-opt etcd.qps=1`, '--kvstore-opt requires an etcd'],
  ...['pins /p', 'cgroup /c', 'services off', 'routing off', 'remote-cidrs 10.0.0.0/8', 'layout 1.8'].map(
    (option) => [`${AGENT} --datapath-${option}`, `--datapath-${option.split(' ')[0]} requires`] as const,
  ),
  ...['capacity 1', 'service-capacity 1', 'dry-run'].map(
    (option) => [`${AGENT} --datapath-${option}`, `--datapath-${option.split(' ')[0]} requires`] as const,
  ),
  // Regression: these four had status 1.
  [`${AGENT} --listen 0.0.0.0:80`, '--listen 0.0.0.0 requires --listen-token'],
  [`${AGENT} --ui --listen-name a`, '--listen <address>; --ui requires --listen'],
  [`${OPERATOR} --listen 80 --listen-cert /c`, '--listen-cert and --listen-key require each other'],
  [
    'kvstoremesh --no-socket --kvstore-config /k --clustermesh-config /m --listen-token /t',
    'requires --listen',
  ],
  [`${OPERATOR} --endpoint-slice-sync`, '--endpoint-slice-sync requires --clustermesh-config'],
  [`${OPERATOR} --mcs-api`, '--mcs-api requires --clustermesh-config'],
  [`${OPERATOR} --clustermesh-config /m`, '--clustermesh-config requires --mcs-api or'],
  [
    `${OPERATOR} --identity-allocation-mode kvstore --kvstore-identity-gc-interval 14m59s`,
    'must be 0 or at least 15m',
  ],
  [`${OPERATOR} --delete-all-endpoints --endpoint-gc-interval 0`, 'and --identity-gc-interval 0'],
  ['kvstoremesh --no-socket --clustermesh-config /m', 'no local kvstore: add --kvstore-config'],
  ['kvstoremesh --no-socket --kvstore-config /k', 'no remote clusters: add --clustermesh-config'],
  ['record', 'no kvstore: add --kvstore-config or --clustermesh-config'],
  ['record --kvstore-config /k --follow', '--follow requires --out'],
  ['record --kvstore-config /k --out /o', '--out requires --follow'],
  [`ipcache list ${AT_NOWHERE} --cluster a`, '--cluster has no effect'],
  [`ipcache list ${AT_NOWHERE} --count --limit 5`, 'cannot be used with'],
  [`ipcache list ${AT_NOWHERE} --count -q`, 'cannot be used with'],
  [`ipcache list ${AT_NOWHERE} --at -1h --count`, 'cannot be used with'],
  [`ipcache list ${AT_NOWHERE} --at -1h --watch`, 'cannot be used with'],
  ['ipcache list --load /a --watch', '--watch requires a running agent'],
  // Regression: these read the whole mesh, then failed because they had no history.
  ['ipcache get 10.0.0.1 --load /a --at -1h', '--at requires a running agent'],
  ['ipcache lookup 10.0.0.1 --load /a --at -1h', '--at requires a running agent'],
  ['history --load /a', "unknown option '--load'"],
  [`history ${AT_NOWHERE} --from #5 --to #4`, '--from #5 is after --to #4'],
  [`history ${AT_NOWHERE} --from -1h --to -2h`, 'exchange them'],
  [`history ${AT_NOWHERE} --around -1h --from -2h`, 'cannot be used with'],
  [`history ${AT_NOWHERE} --export /x --around -1h`, 'cannot be used with'],
  // regression: were ignored
  [`history ${AT_NOWHERE} --export /x --limit 3`, 'cannot be used with'],
  [`history ${AT_NOWHERE} --export /x -o json`, 'cannot be used with'],
  [`history ${AT_NOWHERE} 10.0.0.1 --around -1h`, '--around prints the changes of all keys: remove 10.0.0.1'],
  [`history ${AT_NOWHERE} --window 5s`, '--window requires --around'],
  ['agent --load /l --once --listen 0', "'--listen <address>' cannot be used with option '--once'"],
  ['agent --load /l --once --tape /t', "'--tape <folder>' cannot be used with option '--once'"],
  [`whatif rank ${AT_NOWHERE} k8s above k8s`, 'name two different sources'],
];

describe('options that contradict each other', () => {
  it.each(CONTRADICTIONS)('%s: %s', async (words, message) => {
    const result = await run(words.split(' '));
    expect(result).toMatchObject({ status: 2, stderr: expect.stringContaining(message) });
  });

  it.each([
    `${AGENT} --history-disk off`,
    `${AGENT} --kubeconfig a --manifests b --k8s-watch nodes`,
    `${AGENT} --clustermesh-config /m --kvstore-opt etcd.qps=1`,
    `${OPERATOR} --identity-allocation-mode kvstore --kvstore-identity-gc-interval 15m`,
    `${OPERATOR} --identity-allocation-mode kvstore --kvstore-identity-gc-interval 0`,
    `${OPERATOR} --identity-allocation-mode kvstore --endpoint-gc-interval 0 --delete-all-endpoints`,
    'agent --no-socket --follow-nothing',
  ])('%s has no contradiction', async (words) => {
    expect(await run(words.split(' '))).toMatchObject({ status: 0, stderr: '' });
  });

  it.each([
    `history ${AT_NOWHERE} --from #4 --to #4`,
    `history ${AT_NOWHERE} --from -1h --to #4`,
    `ipcache get ${AT_NOWHERE} 10.0.0.1 --at -1h`,
    `ipcache list ${AT_NOWHERE} --watch`,
  ])('%s has no contradiction, but no agent answers', async (words) => {
    const result = await run(words.split(' '));
    expect(result).toMatchObject({ status: 1, stderr: expect.stringContaining('start one') });
    expect(result.stderr).not.toContain('--load'); // which cannot answer these
  });
});
