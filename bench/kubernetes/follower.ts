import { liveBytes } from '../meter.ts';
import { ownWorkDuring } from '../own-work.ts';
import type { Follow } from './following.ts';
import type { FollowerReport, FollowerTask, NodeFollowerName, Part } from './protocol.ts';

// node --expose-gc follower.js NAME TASK: follows an API server until it is killed, and prints the costs.

const FOLLOW: Readonly<Record<NodeFollowerName, () => Promise<{ readonly follow: Follow }>>> = {
  feed: () => import('./feed.ts'),
  reflectors: () => import('./reflectors.ts'),
  'client-node': () => import('./client-node.ts'),
};

function print(report: FollowerReport): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

async function part(work: () => Promise<void>): Promise<Part> {
  const before = process.cpuUsage();
  const { ms, delay, ownP99 } = await ownWorkDuring(work);
  const { user, system } = process.cpuUsage(before);
  const { maxRSS } = process.resourceUsage();
  const cpuMs = Math.round((user + system) / 1000);
  return { ms, cpuMs, peakMB: maxRSS / 1024, loop: { ...delay, ownP99 } };
}

const [name = '', json = ''] = process.argv.slice(2);
const task: FollowerTask = JSON.parse(json);
const { follow } = await FOLLOW[name as NodeFollowerName]();
const following = follow(task);
const burst = new Set<string>();
let onBurst = (): void => {};
const onIP = (ip: string): void => {
  if (ip.startsWith(task.changePrefix)) print({ type: 'change', ip, at: Date.now() });
  if (ip.startsWith(task.burstPrefix) && burst.add(ip).size === task.burst) onBurst();
};

const synced = await part(() => following.sync(onIP));
const counts = following.counts().join();
// The API server has a service of its own.
const expected = [task.endpoints, task.services + 1, task.services].join();
if (counts !== expected) throw new Error(`${name} has ${counts} objects, expected ${expected}`);
const liveMB = (await liveBytes()) / 2 ** 20;
print({ type: 'synced', part: synced, liveMB });
const over = await part(
  () =>
    new Promise((resolve) => {
      onBurst = resolve;
    }),
);
print({ type: 'burst', part: over });
