import { createInterface } from 'node:readline';
import { delayDuring } from '../loop-delay.ts';
import type { FollowerTask, Part, PartName } from './protocol.ts';

// node --expose-gc follower.js datapath-cache|node TASK: follows a cluster until its standard input ends.

/** Follows the IPs of a cluster. */
export interface Following {
  /** Resolves when all existing keys are applied. */
  list(): Promise<void>;
  /** Resolves when `count` changes after the list are applied. */
  changes(count: number): Promise<void>;
  /** Resolves after the connection was lost and all keys were compared again. */
  resynced(): Promise<void>;
  /** Milliseconds from the start of the connection, in `list`, to the first entry. */
  readonly firstMs: number;
}

const [name = '', json = ''] = process.argv.slice(2);
const task: FollowerTask = JSON.parse(json);
const { follow }: { follow(task: FollowerTask): Following } =
  name === 'node' ? await import('./plain-node.ts') : await import('./mesh.ts');
const following = follow(task);

const PARTS: Readonly<Record<PartName, () => Promise<void>>> = {
  list: () => following.list(),
  watch: () => following.changes(task.keys),
  resync: () => following.resynced(),
};

async function run(part: PartName): Promise<void> {
  const before = part === 'list' ? { user: 0, system: 0 } : process.cpuUsage();
  const { ms, delay } = await delayDuring(PARTS[part]);
  const { user, system } = process.cpuUsage();
  const cpuMs = (user - before.user + system - before.system) / 1000;
  const peakMB = process.resourceUsage().maxRSS / 1024;
  globalThis.gc?.();
  const steadyMB = process.memoryUsage.rss() / 2 ** 20;
  const report: Part = {
    part,
    cpuMs,
    peakMB,
    steadyMB,
    loop: delay,
    ms: part === 'list' ? performance.now() : ms,
    ...(part === 'list' && { firstMs: following.firstMs }),
  };
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

await run('list');
for await (const line of createInterface(process.stdin)) if (line in PARTS) void run(line as PartName);
process.exit();
