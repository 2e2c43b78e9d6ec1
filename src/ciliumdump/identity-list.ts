import { rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { type OutputContext, parseOutputList } from './output-json.ts';
import { identityOf } from './table-entry.ts';

/**
 * Returns the labels of each identity (`k8s:app=web`) in the output of `identity list`, as a table or with `-o json`,
 * in the order of the output. An unreadable line or element is rejected without affecting the others.
 */
export function readIdentityList(
  text: string,
  context: OutputContext,
): ReadonlyMap<number, readonly string[]> {
  if (/^\[/m.test(text)) return identitiesOfJson(text, context);
  const identities = new Map<number, string[]>();
  let labels: string[] = []; // of the last identity
  const title = Math.max(0, text.search(/^ID\s/m)); // after warnings of the program
  for (const line of text.slice(title).split('\n').slice(1)) {
    const [, number = '', label = ''] = /^(\d{0,10})\s+(\S.*)$/.exec(line.trimEnd()) ?? [];
    const identity = number === '' ? undefined : identityOf(Number(number));
    if (identity !== undefined) {
      labels = [label];
      identities.set(identity, labels);
    } else if (number === '' && label !== '') labels.push(label);
    else if (line.trim() !== '')
      context.onReject(
        rejection('invalid-line', 'identity list', line, 'must have a number and labels', context.at),
      );
  }
  return identities;
}

function identitiesOfJson(text: string, context: OutputContext): ReadonlyMap<number, readonly string[]> {
  const identities = new Map<number, readonly string[]>();
  const list = parseOutputList(text, 'identity list', context) ?? [];
  for (const [index, item] of list.entries()) {
    const identity = isObject(item) ? identityOf(item['id']) : undefined;
    const labels: unknown = isObject(item) ? item['labels'] : undefined;
    if (identity === undefined)
      context.onReject(rejection('invalid-identity', `[${index}].id`, item, 'must be a number', context.at));
    else
      identities.set(
        identity,
        Array.isArray(labels) ? labels.filter((label) => typeof label === 'string') : [],
      );
  }
  return identities;
}
