import { useEffect, useState } from 'preact/hooks';

/** Which view is shown, and with which parameters: all of it is in the address, so that it can be shared. */
export interface Address {
  readonly view: string;
  readonly parameters: URLSearchParams;
}

function current(): Address {
  const [view = '', query = ''] = location.hash.slice(1).split('?');
  return { view: view || 'overview', parameters: new URLSearchParams(query) };
}

/** The address of a view. */
export function addressOf(view: string, parameters: Readonly<Record<string, string>> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== '') query.set(name, value);
  return query.size === 0 ? `#${view}` : `#${view}?${query}`;
}

/** Shows another view. */
export function go(view: string, parameters: Readonly<Record<string, string>> = {}): void {
  location.hash = addressOf(view, parameters);
}

/** Shows the same view with other parameters, while they are typed: no step to go back to. */
export function adjust(view: string, parameters: Readonly<Record<string, string>>): void {
  location.replace(addressOf(view, parameters));
}

/** The address of a prefix: of a single IP its look-up, of others what claims exactly them. */
export function addressOfPrefix(prefix: string): string {
  return addressOf('prefixes', { ip: prefix.replace(prefix.includes(':') ? /\/128$/ : /\/32$/, '') });
}

/** The address now, and whenever it changes. */
export function useAddress(): Address {
  const [address, setAddress] = useState(current);
  useEffect(() => {
    const changed = (): void => setAddress(current());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return address;
}
