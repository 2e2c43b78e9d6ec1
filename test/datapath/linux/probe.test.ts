import { describe, expect, it } from 'vitest';
import {
  type HostFacts,
  missingFor,
  type ProbeAnswer,
  probeHost,
  readHost,
} from '../../../src/datapath/linux/probe.ts';

const NET_ADMIN = 1n << 12n;
const SYS_ADMIN = 1n << 21n;
const BPF = 1n << 39n;

function host(facts: Partial<HostFacts> & { readonly capabilities?: bigint } = {}): HostFacts {
  const { capabilities = BPF | NET_ADMIN, ...rest } = facts;
  return {
    platform: 'linux',
    arch: 'x64',
    release: '6.18.44-custom',
    status: `Name:\tnode\nCapPrm:\t0000000000000000\nCapEff:\t${capabilities.toString(16).padStart(16, '0')}\n`,
    uidMap: '         0          0 4294967295\n',
    filesystems: 'nodev\tcgroup2\nnodev\tbpf\n\text4\n',
    mounts: [
      'overlay / overlay rw 0 0',
      'bpf /sys/fs/bpf bpf rw 0 0',
      'cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0',
    ].join('\n'),
    ...rest,
  };
}

function probed(facts: Parameters<typeof host>[0] = {}, cgroup?: string): ProbeAnswer {
  return probeHost(host(facts), { pinFolder: '/sys/fs/bpf/dpcache', cgroup });
}

describe('the probe of a host', () => {
  it('finds that every part is available, and the mounted cgroup2', () => {
    const answer = probed();
    expect(answer.pieces.filter(({ missing }) => missing.length > 0)).toEqual([]);
    expect(answer).toMatchObject({
      kernel: '6.18.44-custom',
      pinFolder: '/sys/fs/bpf/dpcache',
      cgroup: '/sys/fs/cgroup/unified',
    });
  });

  it.each<[string, Parameters<typeof host>[0], Record<string, RegExp | undefined>]>([
    ['another system', { platform: 'darwin' }, { maps: /darwin/, sockets: /darwin/, routes: /darwin/ }],
    ['another processor', { arch: 'ia32' }, { maps: /x64 or arm64/, tunnel: /x64 or arm64/ }],
    [
      'the optional package koffi',
      { libraryProblem: 'koffi is not installed' },
      { maps: /koffi/, sockets: /koffi/, routes: /koffi/, tunnel: /koffi/, nftables: /koffi/ },
    ],
    ['an old kernel', { release: '5.4.0-generic' }, { maps: /5\.4\.0.*5\.8 or later/, routes: undefined }],
    ['a newer major', { release: '6.1.0' }, { maps: undefined, sockets: undefined }],
    [
      'no capability',
      { capabilities: 0n },
      { maps: /CAP_BPF/, routes: /CAP_NET_ADMIN/, nftables: /CAP_NET_ADMIN/ },
    ],
    [
      'CAP_BPF alone',
      { capabilities: BPF },
      { maps: undefined, sockets: /CAP_NET_ADMIN/, tunnel: /CAP_NET_ADMIN/ },
    ],
    [
      'CAP_NET_ADMIN alone',
      { capabilities: NET_ADMIN },
      { maps: /CAP_BPF/, sockets: /CAP_BPF/, routes: undefined },
    ],
    ['CAP_SYS_ADMIN for CAP_BPF', { capabilities: SYS_ADMIN }, { maps: undefined, routes: /CAP_NET_ADMIN/ }],
    ['a user namespace', { uidMap: '0 1000 1\n' }, { maps: /user namespace/, routes: undefined }],
    ['a kernel without bpf', { filesystems: 'nodev\tproc\n' }, { maps: /CONFIG_BPF_SYSCALL/ }],
    [
      'no bpffs',
      { mounts: 'c /c cgroup2 rw 0 0' },
      { maps: /mount -t bpf/, sockets: /mount -t bpf/, routes: undefined },
    ],
    [
      'no cgroup2',
      { mounts: 'bpf /sys/fs/bpf bpf rw 0 0' },
      { maps: undefined, sockets: /no cgroup2 is mounted/ },
    ],
    [
      'a bpffs that another mount hides',
      { mounts: 'bpf /sys/fs/bpf bpf rw 0 0\ntmpfs /sys/fs/bpf tmpfs rw 0 0\n' },
      { maps: /no BPF file system at \/sys\/fs\/bpf\/dpcache/ },
    ],
    [
      'a bpffs with a similar name',
      { mounts: 'sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpf/dp bpf rw 0 0\n' },
      { maps: /no BPF file system/ },
    ],
  ])('reports the missing requirement: %s', (_, facts, expected) => {
    const answer = probed(facts);
    for (const [part, pattern] of Object.entries(expected)) {
      const { missing } = answer.pieces.find((one) => one.piece === part) ?? { missing: ['no such part'] };
      if (pattern === undefined) expect([part, ...missing]).toEqual([part]);
      else expect(missing.join('\n')).toMatch(pattern);
    }
  });

  it('accepts the configured cgroup, and rejects one that is not on a cgroup2', () => {
    expect(missingFor(probed({}, '/sys/fs/cgroup/unified/pods/../agent'), 'sockets')).toEqual([]);
    expect(probed({}, '/sys/fs/cgroup/unified/pods/../agent').cgroup).toBe('/sys/fs/cgroup/unified/agent');
    expect(missingFor(probed({}, '/sys/fs/cgroup/cpu'), 'sockets')).toEqual([
      '/sys/fs/cgroup/cpu is not on a cgroup2 file system: set a folder on a mounted one',
    ]);
  });

  it('reads paths with blanks as the kernel writes them', () => {
    const mounts = 'bpf /my\\040pins bpf rw 0 0\n';
    const answer = probeHost(host({ mounts }), { pinFolder: '/my pins/dpcache' });
    expect(missingFor(answer, 'maps')).toEqual([]);
  });

  it('reports each problem once', () => {
    const { missing } = probed({ release: '4.9.0', capabilities: 0n }).pieces.find(
      ({ piece }) => piece === 'sockets',
    ) ?? {
      missing: [],
    };
    expect(missing).toHaveLength(new Set(missing).size);
    expect(missing.filter((text) => text.includes('kernel'))).toHaveLength(1);
  });

  it('treats a host without a readable /proc as one without any requirement', () => {
    const facts = readHost('/nowhere');
    expect(facts).toMatchObject({ status: '', mounts: '' });
    expect(missingFor(probeHost(facts, { pinFolder: '/sys/fs/bpf' }), 'routes').join()).toMatch(
      process.platform === 'linux' ? /CAP_NET_ADMIN/ : /Linux/,
    );
  });
});
