import { readFileSync } from 'node:fs';
import { release } from 'node:os';
import { join, resolve } from 'node:path';
import { missingLibrary, systemProblem } from './syscall/native.ts';

/**
 * A piece of a part of the datapath: `routes` and `tunnel` (nodes), `maps` (ipcache), `sockets` and `nftables`
 * (services). Each has its own requirements.
 */
export type DatapathPiece = 'maps' | 'sockets' | 'routes' | 'tunnel' | 'nftables';

/** Facts about a host, in the kernel's format. */
export interface HostFacts {
  readonly platform: string;
  readonly arch: string;
  /** Why the optional package for system calls does not load, with a remedy; `undefined` if it loads. */
  readonly libraryProblem?: string | undefined;
  /** `uname -r`: `6.18.44`. */
  readonly release: string;
  /** `/proc/self/status`. */
  readonly status: string;
  /** `/proc/self/uid_map`. */
  readonly uidMap: string;
  /** `/proc/filesystems`. */
  readonly filesystems: string;
  /** `/proc/self/mounts`. */
  readonly mounts: string;
}

export interface ProbeOptions {
  /** Folder for pins of maps, programs and links. */
  readonly pinFolder: string;
  /** The cgroup to attach to; default the root of the first mounted cgroup2. */
  readonly cgroup?: string | undefined;
}

/**
 * A {@link DatapathPiece} and its missing requirements, one sentence each with a remedy. `missing` is empty if the
 * piece can run.
 */
export interface PieceAnswer {
  readonly piece: DatapathPiece;
  readonly missing: readonly string[];
}

/** What a host offers to a datapath. */
export interface ProbeAnswer {
  readonly kernel: string;
  readonly pieces: readonly PieceAnswer[];
  readonly pinFolder: string;
  /** The cgroup to attach to; `undefined` if there is none. */
  readonly cgroup: string | undefined;
}

interface Mount {
  readonly at: string;
  readonly type: string;
}

/** Numbers of `capability.h`. */
const CAPABILITIES = { CAP_NET_ADMIN: 12, CAP_SYS_ADMIN: 21, CAP_BPF: 39 } as const;
type Capability = keyof typeof CAPABILITIES;

/** Batch dumps of LPM tries and links of cgroups exist since 5.7, CAP_BPF and hooks of getpeername since 5.8. */
const MINIMUM_KERNEL = { major: 5, minor: 8 } as const;

/** Reads `/proc`, and loads the package for system calls. Unreadable files are returned empty. */
export function readHost(proc = '/proc'): HostFacts {
  const read = (file: string): string => {
    try {
      return readFileSync(join(proc, file), 'utf8');
    } catch {
      return '';
    }
  };
  return {
    platform: process.platform,
    arch: process.arch,
    libraryProblem: process.platform === 'linux' ? missingLibrary() : undefined,
    release: release(),
    status: read('self/status'),
    uidMap: read('self/uid_map'),
    filesystems: read('filesystems'),
    mounts: read('self/mounts'),
  };
}

/**
 * Returns the pieces of a datapath that can run on a host, and the missing requirements of the others. Decides by the
 * facts alone: changes nothing and makes no trial call.
 */
export function probeHost(host: HostFacts, { pinFolder, cgroup }: ProbeOptions): ProbeAnswer {
  const mounts = mountsOf(host.mounts);
  const folder = resolve(pinFolder);
  const group = cgroup === undefined ? mounts.find(({ type }) => type === 'cgroup2')?.at : resolve(cgroup);
  const problem = systemProblem(host.platform, host.arch) ?? host.libraryProblem;
  const maps = [
    ...missingKernel(host),
    ...missingCapability(host, 'CAP_BPF', 'CAP_SYS_ADMIN'),
    ...missingBpfNamespace(host),
    ...missingBpffs(host, mounts, folder),
  ];
  const network = missingCapability(host, 'CAP_NET_ADMIN');
  const pieces: readonly (readonly [DatapathPiece, readonly string[]])[] = [
    ['maps', maps],
    ['sockets', [...maps, ...network, ...missingCgroup(mounts, group)]],
    ['routes', network],
    ['tunnel', network],
    ['nftables', network],
  ];
  return {
    kernel: host.release,
    pieces: pieces.map(([piece, missing]) => ({
      piece,
      missing: problem === undefined ? missing : [problem],
    })),
    pinFolder: folder,
    cgroup: group,
  };
}

/** Returns the missing requirements of a piece; empty if it can run. */
export function missingFor(answer: ProbeAnswer, piece: DatapathPiece): readonly string[] {
  return answer.pieces.find((one) => one.piece === piece)?.missing ?? [];
}

function missingKernel({ release: version }: HostFacts): readonly string[] {
  const [major = 0, minor = 0] = version.split('.').map((text) => Number.parseInt(text, 10));
  const needed = MINIMUM_KERNEL;
  const isOld = major < needed.major || (major === needed.major && minor < needed.minor);
  return isOld
    ? [`kernel ${version} is too old: Linux ${needed.major}.${needed.minor} or later is required`]
    : [];
}

/** Returns a problem if all of these capabilities are missing; one is enough. The problem names the first. */
function missingCapability({ status }: HostFacts, ...names: readonly Capability[]): readonly string[] {
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`);
  const isPresent = names.some((name) => (effective >> BigInt(CAPABILITIES[name])) & 1n);
  return isPresent ? [] : [`${names[0]} is missing: run as root, or add the capability`];
}

/** `bpf()` requires capabilities of the initial user namespace; those of another one apply only to its network. */
function missingBpfNamespace({ uidMap }: HostFacts): readonly string[] {
  const [inside, outside, count] = uidMap.trim().split(/\s+/);
  if (uidMap === '' || (inside === '0' && outside === '0' && count === '4294967295')) return [];
  return ['CAP_BPF has no effect in a user namespace: run in the initial one'];
}

function missingBpffs(
  { filesystems }: HostFacts,
  mounts: readonly Mount[],
  folder: string,
): readonly string[] {
  if (!/\sbpf$/m.test(filesystems))
    return ['the kernel has no BPF file system: CONFIG_BPF_SYSCALL is required'];
  if (mountOf(mounts, folder)?.type === 'bpf') return [];
  return [
    `no BPF file system at ${folder}: run mount -t bpf bpf /sys/fs/bpf, or set a folder on a mounted one`,
  ];
}

function missingCgroup(mounts: readonly Mount[], cgroup: string | undefined): readonly string[] {
  if (cgroup === undefined)
    return ['no cgroup2 is mounted: run mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified'];
  if (mountOf(mounts, cgroup)?.type === 'cgroup2') return [];
  return [`${cgroup} is not on a cgroup2 file system: set a folder on a mounted one`];
}

/** Decodes mounts. Paths contain octal escapes for blanks and backslashes. */
function mountsOf(text: string): readonly Mount[] {
  return text.split('\n').flatMap((line) => {
    const [, at, type] = line.split(' ');
    if (at === undefined || type === undefined) return [];
    const path = at.replaceAll(/\\([0-7]{3})/g, (_, code: string) =>
      String.fromCharCode(Number.parseInt(code, 8)),
    );
    return [{ at: path, type }];
  });
}

/** Returns the mount that contains a path: the deepest one, or the last of several at the same mount point. */
function mountOf(mounts: readonly Mount[], path: string): Mount | undefined {
  const containing = mounts.filter(({ at }) => at === '/' || path === at || path.startsWith(`${at}/`));
  return containing.reduce<Mount | undefined>(
    (best, mount) => (best === undefined || mount.at.length >= best.at.length ? mount : best),
    undefined,
  );
}
