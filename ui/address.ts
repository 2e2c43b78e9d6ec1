import { useEffect, useState } from 'preact/hooks';
import { decodedSegment, namePath } from '../src/api/name-path.ts';

/**
 * The view, the object that it shows, and its parameters. All three are in the address of the page, so that it can be
 * shared.
 */
export interface Address {
  readonly view: string;
  /** An IP or CIDR, `namespace/name`, `cluster/name`, an identity or a cluster; empty for a list. */
  readonly name: string;
  readonly parameters: URLSearchParams;
}

type Parameters = Readonly<Record<string, string>>;

/** Parses the part of an address after `#`. */
function parseAddress(hash: string): Address {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?');
  const parameters = new URLSearchParams(query);
  const [view = '', ...names] = path.split('/');
  return {
    view: view || 'overview',
    name: names.map((name) => decodedSegment(decoded(name))).join('/'),
    parameters,
  };
}

/** Returns the decoded text, or the text itself if it is not valid. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The last parsed address. A table has hundreds of links, which all need it. */
let parsed: { readonly hash: string; readonly address: Address } | undefined;

function currentAddress(): Address {
  const { hash } = location;
  if (parsed?.hash !== hash) parsed = { hash, address: parseAddress(hash) };
  return parsed.address;
}

/** Returns the moment of the whole page; empty: the present. */
export function momentOf({ parameters }: Address): string {
  return parameters.get('at') ?? '';
}

/**
 * Returns the address of a view or of an object. It keeps the moment, unless the parameters contain `at`. The `/` after
 * `#` shows accessibility checkers that this is no link within the page.
 */
export function addressOf(view: string, name = '', parameters: Parameters = {}): string {
  const query = new URLSearchParams();
  const at = momentOf(currentAddress());
  for (const [key, value] of Object.entries({ at, ...parameters })) if (value !== '') query.set(key, value);
  const path = namePath(name === '' ? view : `${view}/${name}`);
  return query.size === 0 ? `#/${path}` : `#/${path}?${query}`;
}

/** Changes parameters of the view, without a new history entry. Empty values remove a parameter. */
export function adjust(changes: Parameters): void {
  const { view, name, parameters } = currentAddress();
  location.replace(addressOf(view, name, { ...Object.fromEntries(parameters), ...changes }));
}

/** Returns the IP of a full-length prefix, or the prefix. */
export function shortPrefix(prefix: string): string {
  return prefix.replace(prefix.includes(':') ? /\/128(?=@|$)/ : /\/32(?=@|$)/, '');
}

/** Returns the current address and follows its changes. */
export function useAddress(): Address {
  const [address, setAddress] = useState(currentAddress);
  useEffect(() => {
    const changed = (): void => setAddress(currentAddress());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return address;
}
