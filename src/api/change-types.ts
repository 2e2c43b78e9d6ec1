/** The kinds of objects with changes. */
export const CHANGE_TYPES = ['ip', 'service', 'node'] as const;

export type ChangeType = (typeof CHANGE_TYPES)[number];

export const ALL_TYPES: ReadonlySet<ChangeType> = new Set(CHANGE_TYPES);
