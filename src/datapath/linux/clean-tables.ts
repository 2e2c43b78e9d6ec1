import { existsSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode, messageOf } from '../../base/failure.ts';
import { Bpf } from './bpf/bpf.ts';
import { type PinnedShape, unpinMap } from './bpf/bpf-map.ts';
import type { KernelTable } from './kernel-table.ts';
import { Kernel } from './syscall/kernel.ts';

/** The removed items, and the remaining ones, which could not be removed or are not ours. One sentence each. */
export interface CleanOutcome {
  readonly removed: readonly string[];
  readonly remaining: readonly string[];
}

/** Removes one kind of our items from a host. Returns the removed items. Throws if it fails. */
export type CleanStep = () => Iterable<string>;

const CHUNK = 256;

/**
 * Removes our items from a table. Yields a line for each removed item. Throws at the end if some could not be removed,
 * with the reasons.
 */
export function* cleanTable<Item>(table: KernelTable<Item>): Generator<string, void, void> {
  const entries = [...new Map([...table.dump()].filter((entry) => entry !== undefined))];
  const order = (key: string): number => table.order?.(key) ?? 0;
  const failures: string[] = [];
  entries.sort(([a], [b]) => order(b) - order(a));
  for (let at = 0; at < entries.length; at += CHUNK) {
    const items = entries.slice(at, at + CHUNK);
    const outcomes = table.apply(items.map(([key]) => ({ key, item: undefined })));
    for (const [index, [key, item]] of items.entries()) {
      const error = outcomes[index];
      if (error === undefined) yield `${table.name} - ${key} ${table.print(item)}`;
      else failures.push(`${table.name} ${key}: ${error.message}`);
    }
  }
  if (failures.length > 0) throw new Error(failures.join('; '));
}

/**
 * Removes our pins from a folder: maps with these names and shapes. Keeps and reports the other files of the folder.
 */
export function cleanPins(folder: string, shapes: ReadonlyMap<string, PinnedShape>): CleanOutcome {
  const removed: string[] = [];
  const remaining: string[] = [];
  const names = namesIn(folder);
  if (names.length === 0) return { removed, remaining };
  using kernel = new Kernel();
  using bpf = new Bpf(kernel);
  for (const name of names) {
    const path = join(folder, name);
    const shape = shapes.get(name);
    try {
      if (shape === undefined) remaining.push(`${path} is foreign`);
      else if (unpinMap(bpf, path, shape)) removed.push(path);
      else remaining.push(`${path} is a foreign map`);
    } catch (error) {
      remaining.push(messageOf(error));
    }
  }
  if (remaining.length === 0) removeFolder(folder);
  return { removed, remaining };
}

/** Runs all steps, even if some fail, and then `pins`. Returns the outcome of all. */
export function cleanAll(steps: readonly CleanStep[], pins: () => CleanOutcome): CleanOutcome {
  const removed: string[] = [];
  const remaining: string[] = [];
  for (const step of steps) {
    try {
      for (const line of step()) removed.push(line);
    } catch (error) {
      remaining.push(messageOf(error));
    }
  }
  try {
    const outcome = pins();
    removed.push(...outcome.removed);
    remaining.push(...outcome.remaining);
  } catch (error) {
    remaining.push(messageOf(error));
  }
  return { removed, remaining };
}

/** Returns the names of pins in a folder. The kernel's own files have dots in their names, which pins cannot have. */
function namesIn(folder: string): readonly string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => !name.includes('.'))
    .sort();
}

/** Removes a folder, unless it is the root of a file system. */
function removeFolder(folder: string): void {
  try {
    rmdirSync(folder);
  } catch (error) {
    if (errorCode(error) !== 'EBUSY') throw error;
  }
}
