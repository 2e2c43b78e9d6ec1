import { setFlagsFromString } from 'node:v8';
import { runInThisContext } from 'node:vm';

setFlagsFromString('--allow-natives-syntax');
/**
 * Returns true if V8 gives both objects one hidden class. In Node 20, each object of a literal that begins with a
 * spread and adds properties has its own: 200 bytes, 0.4 µs for each property, and slow reads.
 */
export const haveOneClass = runInThisContext('(a, b) => %HaveSameMap(a, b)') as (
  a: object | undefined,
  b: object | undefined,
) => boolean;
