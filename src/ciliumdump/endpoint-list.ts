import { canonicalAddress } from '../net/prefix.ts';
import { fieldsOf, type OutputContext, parseOutputList } from './output-json.ts';

/** Returns the addresses of a node's own endpoints in the output of `endpoint list`, as a table or with `-o json`. */
export function readEndpointList(text: string, context: OutputContext): ReadonlySet<string> {
  return /^\[/m.test(text) ? addressesOfJson(text, context) : addressesOfTable(text);
}

/**
 * Returns all words that are addresses. Columns are not parsed, because their order depends on the version, and a line
 * with a further label of an endpoint has only this column.
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

function addressesOfJson(text: string, context: OutputContext): ReadonlySet<string> {
  const addresses = new Set<string>();
  for (const item of parseOutputList(text, 'endpoint list', context) ?? []) {
    const networking = fieldsOf(item)?.object('status')?.object('networking');
    const pairs = networking?.list('addressing').items((list, index) => list.item(index)) ?? [];
    for (const pair of pairs)
      for (const address of [pair.address('ipv4'), pair.address('ipv6')])
        if (address !== undefined) addresses.add(address);
  }
  return addresses;
}
