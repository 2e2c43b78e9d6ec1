import { existsSync, readlinkSync, renameSync, unlinkSync } from 'node:fs';
import { useDescriptor } from '../syscall/descriptor.ts';
import { syscallErrorOf } from '../syscall/syscall-error.ts';
import { type Bpf, setAddress } from './bpf.ts';

/** Suffix of the pin of a new map, until it replaces a map of another size or layout. */
export const STAGING_SUFFIX = '_new';

/** Pins an object at a path in a bpffs, so that it outlives this process. */
export function pin(bpf: Bpf, fd: number, path: string): void {
  const attributes = bpf.attributes();
  setAddress(attributes, 0, bpf.text(path));
  attributes.setUint32(8, fd, true);
  bpf.call('OBJ_PIN', path);
}

/** Returns the descriptor of a pinned object; undefined if there is none. */
export function openPin(bpf: Bpf, path: string): number | undefined {
  if (!existsSync(path)) return undefined;
  const attributes = bpf.attributes();
  setAddress(attributes, 0, bpf.text(path));
  return bpf.call('OBJ_GET', path);
}

/** Returns what `use` returns for the descriptor of a pinned object; undefined if there is none. */
export function usePin<T>(bpf: Bpf, path: string, use: (fd: number) => T): T | undefined {
  const fd = openPin(bpf, path);
  return fd === undefined ? undefined : useDescriptor(fd, use);
}

/** Thrown if an object of another program is pinned at the path of one of our pins. */
export class ForeignPinError extends Error {
  override readonly name: string = 'ForeignPinError';
  readonly code: 'foreign-pin' = 'foreign-pin';

  constructor(path: string) {
    super(`${path} is a foreign BPF object: delete it, or set another folder with --datapath-pins`);
  }
}

/** Returns the kind of BPF object of a descriptor; undefined if it is none. */
export function kindOf(fd: number): 'map' | 'prog' | 'link' | undefined {
  const kind = /^anon_inode:bpf[-_](map|prog|link)$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
  return kind === 'map' || kind === 'prog' || kind === 'link' ? kind : undefined;
}

/** Removes a pin if it exists. Throws `SyscallError`, for example if the path is a folder. */
export function unpin(path: string): void {
  if (existsSync(path)) changeFile(`unlink ${path}`, () => unlinkSync(path));
}

/** Moves a pin to another path, and replaces the pin there atomically. Throws `SyscallError`. */
export function movePin(from: string, to: string): void {
  changeFile(`rename to ${to}`, () => renameSync(from, to));
}

/** Runs `change`, a call of `node:fs`. The error names the path, which `messageOf` omits for errors of Node. */
function changeFile(call: string, change: () => void): void {
  try {
    change();
  } catch (error) {
    throw syscallErrorOf(call, error);
  }
}
