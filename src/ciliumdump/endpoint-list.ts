import { type Rejection, rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { canonicalAddress } from '../net/prefix.ts';
import { parseOutputJson } from './output-json.ts';

/** Returns the addresses of a node's own endpoints in the output of `endpoint list`, as a table or with `-o json`. */
export function readEndpointList(
  text: string,
  at: string,
  onReject: (rejection: Rejection) => void,
): ReadonlySet<string> {
  return /^\[/m.test(text) ? addressesOfJson(text, at, onReject) : addressesOfTable(text);
}

/**
 * Returns all words that are addresses, because their columns depend on the version, and labels are on separate lines.
 */
function addressesOfTable(text: string): ReadonlySet<string> {
  const addresses = new Set<string>();
  // Not split, because a list of all words could exceed the memory.
  for (const [word] of text.matchAll(/\S+/g)) {
    const address = /[.:]/.test(word) ? canonicalAddress(word) : undefined;
    if (address !== undefined) addresses.add(address);
  }
  return addresses;
}

function addressesOfJson(
  text: string,
  at: string,
  onReject: (rejection: Rejection) => void,
): ReadonlySet<string> {
  const json = parseOutputJson(text);
  if ('problem' in json)
    onReject(rejection('invalid-json', 'endpoint list', text.slice(0, 64), json.problem, at));
  const list = 'value' in json && Array.isArray(json.value) ? json.value : [];
  const addresses = new Set<string>();
  for (const item of list) {
    const status = isObject(item) && isObject(item['status']) ? item['status'] : {};
    const networking = isObject(status['networking']) ? status['networking'] : {};
    const pairs = Array.isArray(networking['addressing']) ? networking['addressing'] : [];
    for (const pair of pairs.filter(isObject))
      for (const value of [pair['ipv4'], pair['ipv6']]) {
        const address = typeof value === 'string' ? canonicalAddress(value) : undefined;
        if (address !== undefined) addresses.add(address);
      }
  }
  return addresses;
}
