import { isObject } from '../../net/fields.ts';
import { StatusError } from './api-status.ts';

/** `handlers.maxJSONPatchOperations` of the API server. */
const MAX_OPERATIONS = 10_000;

type Container = Record<string, unknown> | unknown[];

function isContainer(value: unknown): value is Container {
  return typeof value === 'object' && value !== null;
}

function rejectPatch(why: string): never {
  throw new StatusError('Invalid', `the server rejected our request due to an error in our request: ${why}`);
}

function parsePointer(pointer: unknown): string[] {
  if (typeof pointer !== 'string' || !pointer.startsWith('/')) return rejectPatch('a path must begin with /');
  return pointer
    .slice(1)
    .split('/')
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/**
 * Returns an array index without leading zeros, at most `max` (RFC 6901, section 4). Rejects the patch if it is none.
 */
function parseIndex(step: string, max: number): number {
  const index = /^(0|[1-9]\d*)$/.test(step) ? Number(step) : Number.NaN;
  return index <= max ? index : rejectPatch(`${step} is not an index of the array`);
}

function read(container: Container, step: string): unknown {
  if (Array.isArray(container)) return container[parseIndex(step, container.length - 1)];
  return Object.hasOwn(container, step) ? Reflect.get(container, step) : undefined;
}

function parentOf(document: Container, path: readonly string[]): Container {
  let at: Container = document;
  for (const step of path.slice(0, -1)) {
    const next = read(at, step);
    if (!isContainer(next)) return rejectPatch(`there is no ${path.join('/')}`);
    at = next;
  }
  return at;
}

function define(container: Container, step: string, value: unknown): void {
  Object.defineProperty(container, step, { value, writable: true, enumerable: true, configurable: true });
}

function add(parent: Container, step: string, value: unknown): void {
  if (Array.isArray(parent))
    parent.splice(step === '-' ? parent.length : parseIndex(step, parent.length), 0, value);
  else define(parent, step, value);
}

function remove(parent: Container, step: string): void {
  if (Array.isArray(parent)) parent.splice(parseIndex(step, parent.length - 1), 1);
  else if (!Object.hasOwn(parent, step)) rejectPatch(`there is no ${step}`);
  else Reflect.deleteProperty(parent, step);
}

/** JSON Patch (RFC 6902): `add`, `remove`, `replace` and `test`, in order, all or none. */
export function jsonPatch(document: unknown, operations: unknown): unknown {
  const result: unknown = structuredClone(document);
  if (!isContainer(result) || !Array.isArray(operations)) return rejectPatch('a patch must be a list');
  if (operations.length > MAX_OPERATIONS)
    throw new StatusError(
      'RequestEntityTooLarge',
      `The allowed maximum operations in a JSON patch is ${MAX_OPERATIONS}, got ${operations.length}`,
    );
  for (const operation of operations) {
    const { op, path, value } = isObject(operation) ? operation : {};
    const pointer = parsePointer(path);
    const parent = parentOf(result, pointer);
    const step = pointer.at(-1) ?? '';
    if (op === 'test') {
      if (JSON.stringify(read(parent, step)) !== JSON.stringify(value))
        rejectPatch(`testing value ${String(path)} failed`);
    } else if (op === 'add') add(parent, step, value);
    else if (op === 'remove') remove(parent, step);
    else if (op === 'replace') {
      remove(parent, step);
      add(parent, step, value);
    } else rejectPatch(`unexpected kind of operation: ${String(op)}`);
  }
  return result;
}

/**
 * Returns the merged value (RFC 7386): objects are merged, null removes a field, and any other value replaces the old
 * one.
 */
export function mergePatch(document: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const result: Record<string, unknown> = isObject(document) ? { ...document } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(result, name);
    else define(result, name, mergePatch(read(result, name), value));
  }
  return result;
}
