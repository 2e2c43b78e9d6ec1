import { expect } from 'vitest';

/** Nothing at all, and `right` without each of these members: what a check must refuse in its place. */
export function without<T extends object>(right: T, ...members: readonly (keyof T)[]): readonly unknown[] {
  return [undefined, ...members.map((member) => ({ ...right, [member]: undefined }))];
}

/** Each value as the one argument of a call. */
export function alone(values: readonly unknown[]): readonly (readonly unknown[])[] {
  return values.map((value) => [value]);
}

/** Calls a method with each of these lists of arguments: it must refuse all of them in its own name. */
export function expectRefused(subject: object, method: string, calls: readonly (readonly unknown[])[]): void {
  for (const args of calls) {
    expect(() => Reflect.apply(Reflect.get(subject, method), subject, args)).toThrow(
      new RegExp(`^${method}: \\S+ must \\w`),
    );
  }
}
