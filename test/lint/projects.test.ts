import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ELSEWHERE, ISOLATED, SLOWEST } from '../projects.ts';

const TEST = new URL('..', import.meta.url).pathname;

const FILES = readdirSync(TEST, { recursive: true, encoding: 'utf8' });
const NAMES = FILES.filter((name) => name.endsWith('.test.ts')).map((name) =>
  name.slice(0, -'.test.ts'.length),
);

/** A file that checks if the machine can run a test of the kernel. */
const NEEDS_KERNEL = /from '[./\w-]*\/support\/requirements\.ts'/;

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

  it('give every test of the kernel a process of its own', () => {
    const ofKernel = NAMES.filter((name) =>
      NEEDS_KERNEL.test(readFileSync(join(TEST, `${name}.test.ts`), 'utf8')),
    );
    expect(ofKernel.length).toBeGreaterThan(10);
    expect(ofKernel.filter((name) => !ISOLATED.includes(name) && !name.startsWith('long/'))).toEqual([]);
  });
});
