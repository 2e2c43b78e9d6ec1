import { type Mock, vi } from 'vitest';

type Constructor = new (...given: never[]) => object;

/**
 * Lets a test observe each `new` of a class that a module exports. `construct` returns the new object; default: an
 * object of the class.
 */
export function spyOnConstructor<N extends string, C extends Constructor>(
  module: Readonly<Record<N, C>>,
  name: N,
  construct?: () => object,
): Mock<C> {
  const Original = module[name];
  const proxy = new Proxy(Original, {
    construct: (target, given) => construct?.() ?? Reflect.construct(target, given),
  });
  const spy = vi.spyOn(module as unknown as Record<string, () => object>, name);
  return spy.mockImplementation(proxy as never) as never;
}
