import { useEffect, useState } from 'preact/hooks';

/** The view and its parameters. Both are in the address, so that it can be shared. */
export interface Address {
  readonly view: string;
  readonly parameters: URLSearchParams;
}

function current(): Address {
  const [view = '', query = ''] = location.hash.slice(1).split('?');
  return { view: view || 'overview', parameters: new URLSearchParams(query) };
}

/** Returns the address of a view. */
export function addressOf(view: string, parameters: Readonly<Record<string, string>> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== '') query.set(name, value);
  return query.size === 0 ? `#${view}` : `#${view}?${query}`;
}

/** Opens another view. */
export function go(view: string, parameters: Readonly<Record<string, string>> = {}): void {
  location.hash = addressOf(view, parameters);
}

/** Changes the parameters of the view without a new history entry, while the user types. */
export function adjust(view: string, parameters: Readonly<Record<string, string>>): void {
  location.replace(addressOf(view, parameters));
}

/** Returns the address of a prefix: the lookup of a single IP, or the claims on exactly this CIDR. */
export function addressOfPrefix(prefix: string): string {
  return addressOf('prefixes', {
    ip: prefix.replace(prefix.includes(':') ? /\/128(?=@|$)/ : /\/32(?=@|$)/, ''),
  });
}

/** Returns the current address and follows its changes. */
export function useAddress(): Address {
  const [address, setAddress] = useState(current);
  useEffect(() => {
    const changed = (): void => setAddress(current());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return address;
}
