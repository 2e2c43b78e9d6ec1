import { readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode, messageOf } from '../../base/failure.ts';
import { Bpf } from './bpf/bpf.ts';
import { canUnpinMap, type PinnedShape } from './bpf/bpf-map.ts';
import { unpin } from './bpf/pin.ts';
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
  for (const name of names) {
    const path = join(folder, name);
    const shape = shapes.get(name);
    if (shape === undefined) remaining.push(`${path} is foreign`);
    else if (!isShaped(path, shape)) remaining.push(`${path} is a foreign map`);
    else {
      unpin(path);
      removed.push(path);
    }
  }
  if (names.length > 0 && remaining.length === 0) rmdirSync(folder);
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

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

function isShaped(path: string, shape: PinnedShape): boolean {
  using kernel = new Kernel();
  using bpf = new Bpf(kernel);
  return canUnpinMap(bpf, path, shape);
}
