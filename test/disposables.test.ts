import { expect, it } from 'vitest';
import * as api from '../src/index.ts';
import * as kubernetes from '../src/kubernetes.ts';
import * as linux from '../src/linux.ts';
import * as shared from '../src/shared.ts';
import * as testing from '../src/testing.ts';

const ENDS = ['stop', 'close'] as const;

/** Returns the methods among `stop` and `close` that an object has. */
function endsOf(object: object): readonly string[] {
  return ENDS.filter((name) => typeof Reflect.get(object, name) === 'function');
}

/** The prototypes of all public classes with `stop` or `close`. */
const PROTOTYPES = new Map(
  [api, kubernetes, linux, shared, testing].flatMap((entry) =>
    Object.entries<unknown>({ ...entry }).flatMap(([name, value]): [string, object][] => {
      const prototype: unknown = typeof value === 'function' ? value.prototype : undefined;
      return typeof prototype === 'object' && prototype !== null && endsOf(prototype).length > 0
        ? [[name, prototype]]
        : [];
    }),
  ),
);

it.each([...PROTOTYPES])('%s is ended by `using` or `await using`', async (_, prototype) => {
  const called: string[] = [];
  const object: object = Object.create(prototype);
  for (const name of ENDS) Reflect.set(object, name, () => Promise.resolve(called.push(name)));
  const dispose: unknown = Reflect.get(object, Symbol.asyncDispose) ?? Reflect.get(object, Symbol.dispose);
  expect(dispose).toBeTypeOf('function');
  if (typeof dispose === 'function') await dispose.call(object);
  expect(called).toEqual(endsOf(prototype));
});

it('the classes include those that hold connections, timers or subscriptions', () => {
  expect([...PROTOTYPES.keys()]).toEqual(
    expect.arrayContaining(['ClusterMesh', 'EtcdBackend', 'History', 'KubernetesFeed', 'NodeManager']),
  );
});
