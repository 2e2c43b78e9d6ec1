import { matchesLabels, parseLabelSelector } from '../../model/label-selector.ts';
import { isObject } from '../../net/fields.ts';
import type { KubernetesObject } from '../resource.ts';
import { StatusError } from './api-status.ts';

/** Returns true if an object is selected. */
export type Selects = (object: KubernetesObject) => boolean;

const FIELD = /^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s=,()]*)\s*$/;

/** Returns the string at a path; undefined if there is none. */
function stringAt(object: unknown, path: readonly string[]): string | undefined {
  let value = object;
  for (const name of path) value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  return typeof value === 'string' ? value : undefined;
}

/** Parses a label selector: `app=web,!headless,tier in (a, b)`. Throws a `LabelSelectorError`. */
export function labelSelector(text: string | null): Selects {
  const selector = parseLabelSelector(text ?? '');
  return (object) =>
    matchesLabels(selector, { get: (name) => stringAt(object, ['metadata', 'labels', name]) });
}

/**
 * Parses a field selector: `metadata.name=a,spec.nodeName!=b`. All fields are supported; a real server supports a few.
 * Absent fields are empty. Throws a {@link StatusError}.
 */
export function fieldSelector(text: string | null): Selects {
  const terms = text === null || text.trim() === '' ? [] : text.split(',');
  const requirements = terms.map((term): Selects => {
    const [, path = '', sign, wanted] = FIELD.exec(term) ?? [];
    if (path === '') throw new StatusError('BadRequest', `invalid selector: ${term}`);
    const names = path.split('.');
    return (object) => ((stringAt(object, names) ?? '') === wanted) === (sign !== '!=');
  });
  return (object) => requirements.every((selects) => selects(object));
}
