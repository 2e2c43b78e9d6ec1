import { leftovers } from './scratch.ts';

/**
 * Before the tests: takes away what runs that were killed have left. After them: fails the run when one of its tests has left
 * a namespace, a mount, a cgroup or a folder behind.
 */
export function setup(): () => void {
  if (process.platform !== 'linux') return () => {};
  for (const left of leftovers()) left.remove();
  return () => {
    const left = leftovers();
    for (const one of left) one.remove();
    if (left.length === 0) return;
    // Vitest shows what a teardown throws, and ends with 0 all the same.
    process.exitCode = 1;
    throw new Error(`tests have left behind: ${left.map(({ what }) => what).join(', ')}`);
  };
}
