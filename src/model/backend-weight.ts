/** The annotation of an EndpointSlice with the weight of all its backends (1.20). Weight 0: in maintenance. */
export const WEIGHT_ANNOTATION = 'service.cilium.io/weight';

/** The weight of a backend whose slice has no weight, as in Cilium. */
export const DEFAULT_WEIGHT = 100;

const MAX_WEIGHT = 65_535;

/** The requirement that {@link parseWeight} checks, as text for rejections. */
export const WEIGHT_RULE: string = `must be a number from 0 to ${MAX_WEIGHT}`;

/** Returns true if `value` is a weight, 0–65535. */
export function isWeight(value: unknown): boolean {
  return typeof value === 'number' && (value & MAX_WEIGHT) === value;
}

/** Returns the weight in an annotation, or undefined if it is no decimal number of 16 bits. */
export function parseWeight(text: string): number | undefined {
  return /^\d+$/.test(text) && Number(text) <= MAX_WEIGHT ? Number(text) : undefined;
}
