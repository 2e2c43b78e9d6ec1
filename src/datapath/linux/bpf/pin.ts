import { existsSync, readlinkSync, unlinkSync } from 'node:fs';
import { type Bpf, setAddress } from './bpf.ts';

/** Gives an object a name in a bpffs, under which it outlives this process. */
export function pin(bpf: Bpf, fd: number, path: string): void {
  const attributes = bpf.attributes();
  setAddress(attributes, 0, bpf.text(path));
  attributes.setUint32(8, fd, true);
  bpf.call('OBJ_PIN', path);
}

/** The descriptor of what is pinned; undefined when nothing is. */
export function openPin(bpf: Bpf, path: string): number | undefined {
  if (!existsSync(path)) return undefined;
  const attributes = bpf.attributes();
  setAddress(attributes, 0, bpf.text(path));
  return bpf.call('OBJ_GET', path);
}

/** What is under a pin of ours is somebody else's. */
export class ForeignPinError extends Error {
  override readonly name: string = 'ForeignPinError';
  readonly code: 'foreign-pin' = 'foreign-pin';

  constructor(path: string) {
    super(`${path} is not ours: take it away, or name another folder with --datapath-pins`);
  }
}

/** Whether a descriptor is of a map, a program or a link; undefined when of nothing that is pinned. */
export function kindOf(fd: number): 'map' | 'prog' | 'link' | undefined {
  const kind = /^anon_inode:bpf[-_](map|prog|link)$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
  return kind === 'map' || kind === 'prog' || kind === 'link' ? kind : undefined;
}

/** Takes a pin away, if it is there. What it kept alive goes when nothing else uses it. */
export function unpin(path: string): void {
  if (existsSync(path)) unlinkSync(path);
}
