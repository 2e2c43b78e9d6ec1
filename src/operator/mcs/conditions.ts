import { cutText } from '../../base/show-value.ts';
import { field, items } from '../collect/field.ts';

/** A condition of a status, without the time of its last transition. */
export interface Condition {
  readonly type: string;
  readonly status: 'True' | 'False';
  readonly reason: string;
  readonly message: string;
}

/** The limit of Kubernetes. An API server refuses the whole status with a longer message. */
const MAX_MESSAGE = 32_768;

/**
 * Returns the conditions of an object after setting the wanted conditions. The transition time of a condition changes
 * only with its status. Returns undefined if nothing changes.
 *
 * @param types all types that this program sets; conditions of these types that are not wanted are removed
 * @param now RFC 3339
 */
export function changedConditions(
  object: unknown,
  wanted: readonly Condition[],
  types: readonly string[],
  now: string,
): readonly unknown[] | undefined {
  const current = items(object, 'status', 'conditions');
  const unwanted = types.filter((type) => wanted.every((condition) => condition.type !== type));
  const kept = current.filter((condition) => !unwanted.includes(String(field(condition, 'type'))));
  let isChanged = kept.length < current.length;
  for (const { message, ...others } of wanted) {
    const condition: Condition = { ...others, message: cutText(message, MAX_MESSAGE) };
    const index = kept.findIndex((other) => field(other, 'type') === condition.type);
    const previous = kept[index];
    const isSame = (['status', 'reason', 'message'] as const).every(
      (name) => field(previous, name) === condition[name],
    );
    if (previous !== undefined && isSame) continue;
    isChanged = true;
    const isSameStatus = field(previous, 'status') === condition.status;
    const lastTransitionTime = isSameStatus ? (field(previous, 'lastTransitionTime') ?? now) : now;
    kept.splice(index === -1 ? kept.length : index, 1, { ...condition, lastTransitionTime });
  }
  return isChanged ? kept : undefined;
}
