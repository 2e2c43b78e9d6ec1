import { existsSync, unlinkSync } from 'node:fs';
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

/** Takes a pin away, if it is there. What it kept alive goes when nothing else uses it. */
export function unpin(path: string): void {
  if (existsSync(path)) unlinkSync(path);
}
