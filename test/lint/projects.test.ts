import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ELSEWHERE, ISOLATED, SLOWEST } from '../projects.ts';

const TEST = new URL('..', import.meta.url).pathname;

const FILES = readdirSync(TEST, { recursive: true, encoding: 'utf8' });
const NAMES = FILES.filter((name) => name.endsWith('.test.ts')).map((name) =>
  name.slice(0, -'.test.ts'.length),
);

/** A file that checks if the machine can run a test of the kernel, or that starts a browser. */
const NEEDS_PROCESS = /from '(?:[./\w-]*\/support\/(?:requirements|open-page)\.ts|playwright-core)'/;

describe('the projects of Vitest', () => {
  it('name files and folders that exist', () => {
    for (const names of [ISOLATED, SLOWEST])
      expect(names.filter((name) => !NAMES.includes(name))).toEqual([]);
    expect(ELSEWHERE.filter((folder) => !existsSync(join(TEST, folder)))).toEqual([]);
  });

  it('run each file once', () => {
    const isElsewhere = (name: string): boolean => ELSEWHERE.some((folder) => name.startsWith(`${folder}/`));
    expect(ISOLATED.filter(isElsewhere)).toEqual([]);
    expect(new Set(ISOLATED).size).toBe(ISOLATED.length);
    // Both configurations select by these endings.
    expect(FILES.filter((name) => /\.spec\.|\.test\.(?!ts$)/.test(name))).toEqual([]);
  });

  it('give every test of the kernel or in a browser a process of its own', () => {
    const alone = NAMES.filter((name) =>
      NEEDS_PROCESS.test(readFileSync(join(TEST, `${name}.test.ts`), 'utf8')),
    );
    expect(alone.length).toBeGreaterThan(16);
    expect(alone.filter((name) => !ISOLATED.includes(name) && !name.startsWith('long/'))).toEqual([]);
  });
});
