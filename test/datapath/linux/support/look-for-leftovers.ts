import { leftovers } from './scratch.ts';

/**
 * Before the tests: removes leftovers of killed runs. After them: fails the run if one of its tests has left
 * a namespace, a mount, a cgroup or a folder.
 */
export function setup(): () => void {
  if (process.platform !== 'linux') return () => {};
  for (const left of leftovers()) left.remove();
  return () => {
    const left = leftovers();
    for (const one of left) one.remove();
    if (left.length === 0) return;
    // Vitest prints an error of a teardown, but exits with 0.
    process.exitCode = 1;
    throw new Error(`tests have left behind: ${left.map(({ what }) => what).join(', ')}`);
  };
}
