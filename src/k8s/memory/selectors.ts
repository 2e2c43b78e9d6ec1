import { isObject } from '../../net/fields.ts';
import type { KubernetesObject } from '../resource.ts';

/** Returns true if an object is selected. */
export type Selects = (object: KubernetesObject) => boolean;

/** An invalid selector. */
export class SelectorError extends Error {
  override readonly name = 'SelectorError';
}

const SET = /^\s*([^\s!=,()]+)\s+(in|notin)\s+\(([^()]*)\)\s*$/;
const EQUAL = /^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s=,()]*)\s*$/;
const EXISTS = /^\s*(!?)\s*([^\s!=,()]+)\s*$/;

type ValueTest = (value: string | undefined) => boolean;

function requirement(text: string): readonly [string, ValueTest] {
  const [, setName, operator, list] = SET.exec(text) ?? [];
  if (setName !== undefined) {
    const values = new Set(list?.split(',').map((value) => value.trim()));
    const isIn: ValueTest = (value) => value !== undefined && values.has(value);
    return [setName, operator === 'in' ? isIn : (value) => !isIn(value)];
  }
  const [, name, sign, wanted] = EQUAL.exec(text) ?? [];
  if (name !== undefined) return [name, (value) => (value === wanted) === (sign !== '!=')];
  const [, not, present] = EXISTS.exec(text) ?? [];
  if (present !== undefined) return [present, (value) => (value === undefined) === (not === '!')];
  throw new SelectorError(`unable to parse requirement: ${text}`);
}

function select(
  selector: string | null,
  read: (object: KubernetesObject, name: string) => string | undefined,
): Selects {
  if (selector === null || selector.trim() === '') return () => true;
  const requirements = selector.split(/,(?![^()]*\))/).map(requirement);
  return (object) => requirements.every(([name, holds]) => holds(read(object, name)));
}

/** Parses a label selector: `app=web,!headless,tier in (a, b)`. Throws {@link SelectorError}. */
export function labelSelector(selector: string | null): Selects {
  return select(selector, ({ metadata: { labels } }, name) => {
    const value = isObject(labels) && Object.hasOwn(labels, name) ? labels[name] : undefined;
    return typeof value === 'string' ? value : undefined;
  });
}

/**
 * Parses a field selector: `metadata.name=a,spec.nodeName!=b`. All fields are supported; a real server supports a few.
 * Absent fields are empty.
 */
export function fieldSelector(selector: string | null): Selects {
  return select(selector, (object, path) => {
    let value: unknown = object;
    for (const name of path.split('.'))
      value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    return typeof value === 'string' ? value : '';
  });
}
