import { isObject } from '../../src/net/fields.ts';

/** Returns the IPv4 address of a CiliumEndpoint. */
export function ipOfEndpoint(endpoint: unknown): string {
  const status = isObject(endpoint) ? endpoint['status'] : undefined;
  const networking = isObject(status) ? status['networking'] : undefined;
  const addressing = isObject(networking) ? networking['addressing'] : undefined;
  const first: unknown = Array.isArray(addressing) ? addressing[0] : undefined;
  const ip = isObject(first) ? first['ipv4'] : undefined;
  return typeof ip === 'string' ? ip : '';
}
