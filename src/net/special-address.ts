/**
 * Canonical addresses that Kubernetes refuses in EndpointSlices (`ValidateNonSpecialIP`): unspecified, loopback,
 * link-local and link-local multicast.
 */
const SPECIAL = /^(?:0\.0\.0\.0$|127\.|169\.254\.|224\.0\.0\.|::1?$|fe[89ab][0-9a-f]:|ff[0-9a-f]2:)/;

/** The rule of {@link isSpecialAddress}, for rejections. */
export const SPECIAL_ADDRESS_RULE = 'must not be an unspecified, loopback or link-local address';

/**
 * Returns true if Kubernetes refuses a canonical address in an EndpointSlice, because it means another host on each
 * node.
 */
export function isSpecialAddress(address: string): boolean {
  return SPECIAL.test(address);
}
