import { readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode, messageOf } from '../../base/failure.ts';
import type { Bpf } from './bpf/bpf.ts';
import { type PinnedShape, unpinMap } from './bpf/bpf-map.ts';
import type { KernelTable } from './kernel-table.ts';

/** The removed items, and the remaining ones, which could not be removed or are not ours. One sentence each. */
export interface CleanOutcome {
  readonly removed: readonly string[];
  readonly remaining: readonly string[];
}

/** Removes one kind of our items from a host. Yields the removed items, and an error for each that remains. */
export type CleanStep = () => Iterable<string | Error>;

const CHUNK = 256;

/** Removes our items from a table. Yields a line for each, and throws at the end if some could not be removed. */
export function* cleanTable<Item>(table: KernelTable<Item>): Generator<string, void, void> {
  const entries = [...new Map([...table.dump()].filter((entry) => entry !== undefined))];
  const order = (key: string): number => table.order?.(key) ?? 0;
  const failures: string[] = [];
  entries.sort(([a], [b]) => order(b) - order(a));
  for (let at = 0; at < entries.length; at += CHUNK) {
    const items = entries.slice(at, at + CHUNK);
    const outcomes = table.apply(items.map(([key]) => ({ key, item: undefined })));
    for (const [index, [key, item]] of items.entries()) {
      let error = outcomes[index];
      while (error === 'unfinished') [error] = table.apply([{ key, item: undefined }]);
      if (error === undefined) yield `${table.name} - ${key} ${table.print(item)}`;
      else failures.push(`${table.name} ${key}: ${error.message}`);
    }
  }
  if (failures.length > 0) throw new Error(failures.join('; '));
}

/**
 * Removes our pins from a folder: maps with these names and shapes. Yields the removed pins, and an error for each
 * other file. Removes the folder if it is empty then.
 */
export function* cleanPins(
  bpf: Bpf,
  folder: string,
  shapes: ReadonlyMap<string, PinnedShape>,
): Generator<string | Error, void, void> {
  let isEmpty = true;
  // The kernel's own files have dots in their names, which pins cannot have.
  const names = readdirSync(folder).filter((name) => !name.includes('.'));
  for (const name of names.sort()) {
    const outcome = cleanPin(bpf, join(folder, name), shapes.get(name));
    if (outcome instanceof Error) isEmpty = false;
    yield outcome;
  }
  if (isEmpty) removeFolder(folder);
}

/** Returns the path if the pin was removed, or the reason why not. */
function cleanPin(bpf: Bpf, path: string, shape: PinnedShape | undefined): string | Error {
  if (shape === undefined) return new Error(`${path} is foreign`);
  try {
    return unpinMap(bpf, path, shape) ? path : new Error(`${path} is a foreign map`);
  } catch (error) {
    return new Error(messageOf(error));
  }
}

/** Runs all steps, even if some fail. Returns the outcome of all. */
export function cleanAll(steps: readonly CleanStep[]): CleanOutcome {
  const removed: string[] = [];
  const remaining: string[] = [];
  for (const step of steps) {
    try {
      for (const outcome of step()) {
        if (outcome instanceof Error) remaining.push(outcome.message);
        else removed.push(outcome);
      }
    } catch (error) {
      remaining.push(messageOf(error));
    }
  }
  return { removed, remaining };
}

/** Removes a folder, unless it is the root of a file system. */
function removeFolder(folder: string): void {
  try {
    rmdirSync(folder);
  } catch (error) {
    if (errorCode(error) !== 'EBUSY') throw error;
  }
}
