import { expect } from 'vitest';

/** Returns invalid values that a check must reject: undefined and null, and `right` without each of these members. */
export function without<T extends object>(right: T, ...members: readonly (keyof T)[]): readonly unknown[] {
  return [undefined, ...members.map((member) => ({ ...right, [member]: undefined }))];
}

/** Returns each value as the only argument of a call. */
export function alone(values: readonly unknown[]): readonly (readonly unknown[])[] {
  return values.map((value) => [value]);
}

/** Calls a method with each of these lists of arguments. It must reject all of them with its name. */
export function expectRefused(subject: object, method: string, calls: readonly (readonly unknown[])[]): void {
  for (const args of calls) {
    expect(() => Reflect.apply(Reflect.get(subject, method), subject, args)).toThrow(
      new RegExp(`^${method}: \\S+ must \\w`),
    );
  }
}
