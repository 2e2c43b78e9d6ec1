/** The weight of a backend whose slice names none, as in Cilium. */
export const DEFAULT_WEIGHT = 100;
