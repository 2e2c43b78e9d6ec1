import { spawnSync } from 'node:child_process';
import { describe, it } from 'vitest';
import { type DatapathPiece, probeHost, readHost } from '../../../../src/datapath/linux/probe.ts';
import { cgroup2Mount, Scratch } from './scratch.ts';

/** Programs that show the content of the kernel. */
type Witness = 'bpftool' | 'ip' | 'nft' | 'ping' | 'setpriv' | 'ss' | 'tc';

/**
 * What a test needs of the machine: parts of the datapath, programs, and separate namespaces, mounts and
 * cgroups.
 */
export type Need =
  | Exclude<DatapathPiece, 'nftables'>
  | 'nftables'
  | 'namespaces'
  | 'user-namespaces'
  | Witness;

/** Commands that show if a program is installed. */
const WITNESSES: Readonly<Record<Witness, readonly string[]>> = {
  bpftool: ['version'],
  ip: ['-V'],
  nft: ['--version'],
  ping: ['-V'],
  setpriv: ['--version'],
  ss: ['-V'],
  tc: ['-V'],
};

/** Returns the output of a failed command; undefined if it succeeds. */
function failureOf(command: string, ...args: readonly string[]): string | undefined {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  if (status === 0) return undefined;
  return `${[command, ...args].join(' ')}: ${error?.message ?? stderr.trim()}`;
}

/** Makes something and removes it again. Returns the error. */
function failureToMake(make: (scratch: Scratch) => void): string | undefined {
  using scratch = new Scratch();
  try {
    make(scratch);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Returns the result of the agent's probe of a part with a place for pins. Then the part itself is tried. */
function missingPart(part: DatapathPiece): string | undefined {
  const facts = readHost();
  if (part === 'maps' || part === 'sockets') {
    const failed = failureToMake((scratch) => {
      const pinFolder = scratch.bpffs();
      const cgroup = part === 'sockets' ? scratch.cgroup() : cgroup2Mount();
      const answer = probeHost(readHost(), { pinFolder, cgroup });
      const missing = answer.pieces.find((one) => one.piece === part)?.missing ?? [];
      if (missing.length > 0) throw new Error(missing.join('; '));
    });
    if (failed === undefined) return undefined;
    const said =
      probeHost(facts, { pinFolder: '/sys/fs/bpf' }).pieces.find((one) => one.piece === part)?.missing ?? [];
    const more = said.filter((text) => !text.includes('mount -t bpf') && !failed.includes(text));
    return [...more, failed].join('; ');
  }
  const answer = probeHost(facts, { pinFolder: '/sys/fs/bpf' });
  const missing = answer.pieces.find((one) => one.piece === part)?.missing ?? [];
  if (missing.length > 0) return missing.join('; ');
  const within = ['unshare', '--net'] as const;
  if (part === 'routes') return failureOf(...within, 'ip', 'route', 'show', 'table', 'all');
  if (part === 'tunnel')
    return failureOf(...within, 'ip', ...'link add probe type vxlan id 1 dstport 4789'.split(' '));
  return failureOf(...within, 'nft', 'add', 'table', 'inet', 'probe');
}

const answers = new Map<Need, string | undefined>();

/** Returns what this machine lacks for a need; undefined if nothing. It is really tried, once. */
export function missing(need: Need): string | undefined {
  if (!answers.has(need)) answers.set(need, tried(need));
  return answers.get(need);
}

function tried(need: Need): string | undefined {
  switch (need) {
    case 'namespaces':
      return failureToMake((scratch) => scratch.namespace('probe'));
    case 'user-namespaces':
      return failureOf('unshare', '--user', '--map-root-user', '--net', 'true');
    case 'bpftool':
    case 'ip':
    case 'nft':
    case 'ping':
    case 'setpriv':
    case 'ss':
    case 'tc':
      return failureOf(need, ...WITNESSES[need]);
    default:
      return missingPart(need);
  }
}

/**
 * A `describe` for tests that need something of the machine. If it is missing, they are replaced by a skipped
 * test whose name gives the reason; with `REQUIRE_DATAPATH=1` that test fails.
 */
export function describeOnLinux(title: string, needs: readonly Need[], tests: () => void): void {
  const reasons = needs.flatMap((need) => missing(need) ?? []);
  if (reasons.length === 0) {
    describe(title, tests);
    return;
  }
  const reason = [...new Set(reasons)].join('; ');
  describe(title, () => {
    if (process.env['REQUIRE_DATAPATH'] === '1')
      it('can run on this machine', () => {
        throw new Error(`REQUIRE_DATAPATH=1, but this cannot run here: ${reason}`);
      });
    else it.skip(`cannot run here: ${reason}`, () => {});
  });
}
